/* fuzz_odo_files.c: byte 0 chooses what people edit (a pipeline, the rules of intent, a skill), the rest is the
 * file. What is refused names the file and a line or a reason; what is taken decides any text. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "odo/decide/intent.h"
#include "odo/pipeline/pipeline.h"
#include "odo/pipeline/skill.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rules(const char *text, size_t n, struct err *e) {
    struct intent_rules *r;
    if (intent_parse(&r, "x.yaml", text, n, e)) return;
    struct intent out;
    struct intent_question q = {.text = text, .n = n < 200 ? n : 200};
    intent_decide(r, &q, NULL, &out);
    if (!out.route[0] || !(out.confidence >= 0 && out.confidence <= 1)) __builtin_trap();
    intent_free(r);
}

static void check_skill(const char *text, size_t n, struct err *e) {
    struct arena a;
    struct skill s;
    arena_init(&a, (size_t)4 << 20);
    if (!skill_parse(&s, "x", "x", text, n, &a, e)) {
        const struct skill *all[] = {&s};
        if (strcmp(s.name, "x") != 0 || !s.text || !*s.about) __builtin_trap();
        if (skill_choose(all, 1, s.about) > 0) __builtin_trap();
    }
    arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err e = {0};
    if (size < 1) return 0;
    char *text = mem_strndup((const char *)data + 1, size - 1);
    if (!text) return 0;
    switch (data[0] % 3) {
    case 0: pipeline_check("x", text, size - 1, &e); break;
    case 1: check_rules(text, size - 1, &e); break;
    default: check_skill(text, size - 1, &e); break;
    }
    if (e.code && strncmp(e.text, "x", 1) != 0) __builtin_trap();
    mem_free(text);
    return 0;
}
