#include "odo/facts/facts.h"

#include <string.h>

#include "backend/call.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jobs/jobs.h"
#include "odo/facts/fact.h"
#include "odo/memory.h"
#include "retrieval/words.h"

enum { READ_MS = 60000, MAX_SENTENCES = 4, MAX_NEAR = 4, MAX_TOKENS = 160 };

static const char reader[] =
    "List what the user states about themselves, their people or their things that will matter in "
    "later conversations: names, places, work, health, preferences, plans. Copy each statement as "
    "one short sentence in the user's own words. Questions, tasks and general knowledge are not "
    "such statements. Reply with a JSON array of strings, and with [] if there is none.";
static const char excluder[] =
    "Two statements by the same person, the older one first. Can both be true at the same time, "
    "or does the newer one replace the older one? Reply with one word: both or replaces.";

struct facts {
    struct backend *backend; /* borrowed */
    struct store *store;     /* borrowed */
    struct jobs *jobs;       /* owned */
    _Atomic uint64_t n_name; /* names of jobs are different, so that none waits for another */
};

struct message {
    struct facts *f;    /* view */
    char *owner, *text; /* owned */
};

static void message_free(void *ud) {
    struct message *m = ud;
    if (!m) return;
    mem_free(m->owner);
    mem_free(m->text);
    mem_free(m);
}

/* ---- questions to the model ---- */

int facts_read(struct backend *b, const char *message, _Atomic bool *cancelled, int64_t deadline_ns,
               json_t **out, struct err *e) {
    struct call_result r = {0};
    *out = NULL;
    int rc = call_text(b, 0, reader, message,
                       "root ::= \"[\" (s (\", \" s){0,3})? \"]\"\n"
                       "s ::= \"\\\"\" [^\"\\\\\\n]{3,160} \"\\\"\"",
                       MAX_TOKENS, cancelled, deadline_ns, &r, e);
    json_t *list = rc || !r.content.n ? NULL : json_loadb(r.content.p, r.content.n, 0, NULL), *s;
    size_t i;
    if (!rc && !(*out = json_array())) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    json_array_foreach(list, i, s) {
        const char *text = json_string_value(s);
        if (i < MAX_SENTENCES && text && *text && fact_is_from(text, message) && !rc)
            json_array_append(*out, s);
    }
    json_decref(list);
    call_fini(&r);
    return rc;
}

int facts_exclude(struct backend *b, const char *older, const char *newer, _Atomic bool *cancelled,
                  int64_t deadline_ns, bool *exclude, struct err *e) {
    struct call_result r = {0};
    struct buf text;
    buf_init(&text, (size_t)16 << 10);
    buf_printf(&text, "Older: %s\nNewer: %s", older, newer);
    int rc = text.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                         : call_text(b, 0, excluder, text.p, "root ::= \"both\" | \"replaces\"", 8,
                                     cancelled, deadline_ns, &r, e);
    *exclude = !rc && r.content.n && !strncmp(r.content.p, "replaces", 8);
    buf_fini(&text);
    call_fini(&r);
    return rc;
}

/* ---- one message ---- */

struct near { /* the facts that share words with a sentence */
    const char *sentence;
    char *text[MAX_NEAR]; /* owned */
    int64_t id[MAX_NEAR];
    int n;
};

static int take_near(void *ud, const struct store_memory *m) {
    struct near *x = ud;
    if (m->kind != STORE_FACT || !strcmp(m->text, x->sentence)) return 0;
    if (!(x->text[x->n] = mem_strdup(m->text))) return 1;
    x->id[x->n++] = m->id;
    return x->n == MAX_NEAR;
}

static void find_near(struct facts *f, const char *owner, struct near *x) {
    struct words w;
    struct buf b;
    buf_init(&b, 8192);
    words_of(&w, x->sentence, strlen(x->sentence));
    for (size_t i = 0; i < w.n; ++i) buf_printf(&b, "%s\"%s\"", i ? " OR " : "", w.v[i]);
    struct err e = {0};
    if (b.n && !b.failed &&
        store_memory_match(f->store, owner, b.p, MAX_NEAR, take_near, x, &e) < 0)
        log_warn("odo: memory: %s", e.text);
    buf_fini(&b);
}

/* Stores a sentence, and lets it replace the facts that the model finds to exclude it. */
static int keep(const struct message *m, const char *sentence, _Atomic bool *cancelled,
                int64_t deadline_ns, struct err *e) {
    struct facts *f = m->f;
    struct near x = {.sentence = sentence};
    int64_t id = 0;
    find_near(f, m->owner, &x);
    int rc = memory_keep_fact(f->store, m->owner, sentence, strlen(sentence), false, &id, e);
    for (int i = 0; i < x.n && !rc; ++i) {
        bool exclude = false;
        struct err why = {0};
        if (!facts_exclude(f->backend, x.text[i], sentence, cancelled, deadline_ns, &exclude,
                           &why) &&
            exclude && store_memory_replace(f->store, m->owner, x.id[i], id, &why) &&
            why.code != CHIMERE_ENOENT)
            log_warn("odo: memory: %s", why.text);
    }
    for (int i = 0; i < x.n; ++i) mem_free(x.text[i]);
    return rc;
}

static int work(struct jobs_run *run, void *ud, struct err *e) {
    struct message *m = ud;
    _Atomic bool *cancelled = jobs_cancel_flag(run);
    int64_t deadline = clock_ns() + (int64_t)READ_MS * 1000000;
    json_t *list = NULL, *s;
    size_t i;
    int rc = facts_read(m->f->backend, m->text, cancelled, deadline, &list, e);
    json_array_foreach(list, i, s) if (!rc && !*cancelled) rc =
        keep(m, json_string_value(s), cancelled, deadline, e);
    json_decref(list);
    return rc;
}

/* ---- the queue ---- */

int facts_open(struct facts **out, struct backend *b, struct store *s, struct err *e) {
    struct facts *f = mem_zalloc(sizeof *f);
    *out = NULL;
    if (!f) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->backend = b;
    f->store = s;
    const struct jobs_params p = {.max_queued = FACTS_QUEUE};
    int rc = jobs_open(&f->jobs, &p, e);
    if (rc) mem_free(f);
    else *out = f;
    return rc;
}

void facts_close(struct facts *f) {
    if (!f) return;
    jobs_close(f->jobs);
    mem_free(f);
}

bool facts_post(struct facts *f, const char *owner, const char *message) {
    char name[32];
    if (strlen(message) > FACTS_MAX_MESSAGE || !fact_may_state(message)) return false;
    struct message *m = mem_zalloc(sizeof *m);
    if (!m) return false;
    m->f = f;
    m->owner = mem_strdup(owner);
    m->text = mem_strdup(message);
    snprintf(name, sizeof name, "message %llu", (unsigned long long)++f->n_name);
    const struct jobs_spec job = {
        .kind = "facts", .name = name, .work = work, .drop = message_free, .arg = m};
    if (m->owner && m->text && !jobs_post(f->jobs, &job, NULL, NULL)) return true;
    message_free(m);
    return false;
}

void facts_wait(struct facts *f) { jobs_wait(f->jobs, 0); }
