/* odo_bed.h: an orchestrator over a scripted backend, asked as the server asks it. */
#ifndef CHIMERE_TEST_ODO_BED_H
#define CHIMERE_TEST_ODO_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/call.h"
#include "odo/odo.h"
#include "tools/tool.h"

#include "odo_script.h"

struct seen { /* what the client gets */
    struct buf content, reasoning, notes;
    json_t *calls;
};

static inline int see(void *ud, const struct backend_event *ev) {
    struct seen *s = ud;
    if (ev->kind == EVENT_NOTE) buf_printf(&s->notes, "%s %s\n", ev->name, ev->text);
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CALL)
        json_array_append_new(
            s->calls, json_pack("{s:s, s:i}", "name", ev->chat->name, "index", ev->chat->index));
    return 0;
}

struct bed {
    struct script script;
    struct odo *odo;
    struct request request;
    struct seen seen;
    struct call_result out;
};

static inline void bed_open(struct bed *b, const char *const *replies, int n,
                            const struct odo_params *extra) {
    memset(b, 0, sizeof *b);
    script_init(&b->script, replies, n);
    struct odo_params p = extra ? *extra : (struct odo_params){0};
    p.backend = &b->script.base;
    if (!extra || !extra->card.tools)
        p.card = (struct odo_card){.tools = true, .prompts = true, .judge = true};
    if (!p.pipelines) p.pipelines = TEST_DATA "/../../pipelines";
    p.intent_ms = p.intent_ms ? p.intent_ms : -1;
    struct err e = {0};
    if (odo_open(&b->odo, &p, &e)) fail_msg("%s", e.text);
    request_init(&b->request);
    b->request.messages = json_array();
    buf_init(&b->seen.content, 1 << 20);
    buf_init(&b->seen.reasoning, 1 << 20);
    buf_init(&b->seen.notes, 1 << 20);
    b->seen.calls = json_array();
}

static inline void say(struct bed *b, const char *role, const char *text) {
    json_array_append_new(b->request.messages,
                          json_pack("{s:s, s:s}", "role", role, "content", text));
}

static inline int ask_it(struct bed *b, struct err *e) {
    struct call c = {.backend = odo_find(b->odo, "odo"),
                     .request = &b->request,
                     .on_event = see,
                     .ud = &b->seen};
    call_fini(&b->out);
    return call_run(&c, &b->out, e);
}

static inline void bed_close(struct bed *b) {
    call_fini(&b->out);
    request_fini(&b->request);
    buf_fini(&b->seen.content);
    buf_fini(&b->seen.reasoning);
    buf_fini(&b->seen.notes);
    json_decref(b->seen.calls);
    odo_close(b->odo);
    script_fini(&b->script);
}

/* A tool with the given flags that counts how often it ran. */
static inline int bed_run_counted(void *ud, const json_t *args, struct tool_env *env,
                                  struct buf *out, struct err *e) {
    (void)args, (void)env, (void)e;
    buf_printf(out, "done %d", ++*(int *)ud);
    return 0;
}

static inline void bed_add_counted(struct tool_set *s, const char *name, unsigned flags, int *n) {
    struct tool t = {.flags = flags,
                     .deadline_ms = 60000,
                     .spec = tool_spec(name, "A tool.", "{\"type\":\"object\"}"),
                     .run = bed_run_counted,
                     .ud = n};
    snprintf(t.name, sizeof t.name, "%s", name);
    assert_int_equal(tool_add(s, &t, NULL), 0);
}

enum { CROWD = 64 };

struct crowd_one { /* one of many users: what is asked, and the answer that is wanted */
    struct odo *odo;
    char text[96], wish[200], want[96];
    bool good;
};

static inline void *crowd_ask(void *ud) {
    struct crowd_one *o = ud;
    struct request a;
    struct call_result out;
    request_init(&a);
    a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", o->text);
    if (o->wish[0]) a.extra = json_loads(o->wish, 0, NULL);
    struct call c = {.backend = odo_find(o->odo, "odo"), .request = &a};
    o->good = !call_run(&c, &out, NULL) && out.content.n && !strcmp(out.content.p, o->want);
    call_fini(&out);
    request_fini(&a);
    return NULL;
}

/* All of them at once; how many got the answer that they want. */
static inline int crowd(struct odo *odo, void (*make)(struct crowd_one *o, int i)) {
    static struct crowd_one ones[CROWD];
    pthread_t threads[CROWD];
    int n_good = 0;
    for (int i = 0; i < CROWD; ++i) {
        ones[i] = (struct crowd_one){.odo = odo};
        make(&ones[i], i);
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_ask, &ones[i]), 0);
    }
    for (int i = 0; i < CROWD; ++i) {
        pthread_join(threads[i], NULL);
        n_good += ones[i].good;
    }
    return n_good;
}

static inline const char *content(const struct bed *b) {
    return b->out.content.n ? b->out.content.p : "";
}
static inline const char *notes(const struct bed *b) {
    return b->seen.notes.n ? b->seen.notes.p : "";
}

#endif
