/* fuzz_net.c: byte 0 chooses: a hub's listing and the choice from it, a model's name, or events in pieces. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/hub.h"
#include "net/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Chosen files lie in a row, and no path can leave a directory. */
static void choose(const char *p, size_t n, const char *pick) {
    struct hub_list l;
    struct hub_ref r = {.owner = "o", .repo = "r"};
    struct err e = {0};
    size_t first = 0, n_part = 0;
    hub_list_init(&l);
    snprintf(r.pick, sizeof r.pick, "%s", pick);
    if (hub_list_read(&l, p, n, &e) == 0 && hub_choose(&l, &r, &first, &n_part, &e) == 0)
        if (n_part == 0 || first + n_part > l.n) __builtin_trap();
    for (size_t i = 0; i < l.n; i++)
        if (l.files[i].path[0] == '/' || strstr(l.files[i].path, "..") == l.files[i].path ||
            strstr(l.files[i].path, "/../"))
            __builtin_trap();
    hub_list_fini(&l);
}

static int count(void *ud, const struct sse_event *ev) {
    *(uint64_t *)ud = *(uint64_t *)ud * 31 + ev->n_data + strlen(ev->name) * 7 + strlen(ev->id);
    return 0;
}

static uint64_t read_events(const char *p, size_t n, size_t step, int *failed) {
    struct sse s;
    uint64_t sum = 0;
    sse_init(&s, 1 << 12, count, &sum);
    for (size_t at = 0; at < n; at += step) sse_feed(&s, p + at, n - at < step ? n - at : step);
    *failed = s.failed;
    sse_fini(&s);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const char *p = (const char *)data + 2;
    size_t n = size - 2;
    char text[512];
    snprintf(text, sizeof text, "%.*s", n < 500 ? (int)n : 500, p);
    if (data[0] % 3 == 0) {
        static const char *const picks[] = {"", "Q4_K_M", "a.gguf", "x/a-00001-of-00002.gguf"};
        choose(p, n, picks[data[1] % 4]);
    } else if (data[0] % 3 == 1) {
        struct hub_ref r;
        if (hub_parse(&r, text, NULL) == 0 && (strchr(r.owner, '/') || strstr(r.repo, "..")))
            __builtin_trap();
    } else {
        int whole, pieces;
        uint64_t a = read_events(p, n, n ? n : 1, &whole);
        uint64_t b = read_events(p, n, 1 + data[1] % 7, &pieces);
        if (!whole && !pieces && a != b) __builtin_trap();
        if (!whole != !pieces) __builtin_trap();
    }
    return 0;
}
