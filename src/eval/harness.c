/* harness.c: see harness.h. */
#include "eval/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/os/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "backend/answer.h"
#include "base/thread.h"
#include "eval/score.h"
#include "eval/stats.h"

enum { MAX_ANSWER = 4 << 20, MAX_SLOTS = 512 };

/* ---- items ---- */

int eval_check_item(const json_t *item, struct err *e) {
    static const struct {
        const char *name;
        json_type type;
    } fields[] = {{"id", JSON_STRING},
                  {"skill", JSON_STRING},
                  {"messages", JSON_ARRAY},
                  {"max_tokens", JSON_INTEGER},
                  {"check", JSON_OBJECT}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = json_object_get(item, fields[i].name);
        if (!v || json_typeof(v) != fields[i].type)
            return err_set(e, CHIMERE_EFORMAT, "field %s: missing or of another type",
                           fields[i].name);
    }
    json_int_t limit = json_integer_value(json_object_get(item, "max_tokens"));
    if (limit < 1 || limit > 1 << 20)
        return err_set(e, CHIMERE_EFORMAT, "field max_tokens: expected 1 to %d, got %lld", 1 << 20,
                       (long long)limit);
    struct score s; /* check the item's rule now, not after minutes of generation */
    return score_answer(item, "", 0, &s, e);
}

int eval_load(json_t *items, const char *path, size_t n_max,
              int (*check)(const json_t *item, struct err *e), struct err *e) {
    char *text;
    if (!check) check = eval_check_item;
    size_t n, line = 0, count = 0;
    int rc = file_read(path, EVAL_MAX_FILE, &text, &n, e);
    if (rc) return rc;
    for (char *p = text, *end = text + n; p < end && !rc && (!n_max || count < n_max); line++) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        if (len) {
            json_t *item = json_loadb(p, len, 0, NULL);
            rc = item ? check(item, e) : err_set(e, CHIMERE_EFORMAT, "expected one JSON object");
            if (!rc && json_array_size(items) >= EVAL_MAX_ITEMS)
                rc = err_set(e, CHIMERE_ELIMIT, "expected at most %d items", EVAL_MAX_ITEMS);
            if (rc) {
                err_prefix(e, "%s:%zu", path, line + 1);
                json_decref(item);
            } else {
                json_array_append_new(items, item);
                count++;
            }
        }
        p += len + 1;
    }
    mem_free(text);
    return rc;
}

enum { MAX_FILES = 1024 };

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int eval_load_folder(json_t *items, const char *dir, size_t n_max,
                     int (*check)(const json_t *item, struct err *e), struct err *e) {
    char *names[MAX_FILES];
    size_t n_name = 0;
    const char *name;
    struct fs_folder *d = fs_open(dir);
    if (!d) return err_set(e, CHIMERE_EIO, "%s: cannot read the folder", dir);
    while ((name = fs_next(d)) && n_name < MAX_FILES)
        if (str_ends(name, ".jsonl") && (names[n_name] = mem_strdup(name))) n_name++;
    fs_close(d);
    qsort(names, n_name, sizeof *names, by_text);
    int rc = n_name ? 0 : err_set(e, CHIMERE_ENOENT, "%s: expected files of items, .jsonl", dir);
    for (size_t i = 0; i < n_name; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (!rc) rc = eval_load(items, path, n_max, check, e);
        mem_free(names[i]);
    }
    return rc;
}

/* ---- one answer ---- */

struct slot {
    const json_t *item; /* borrowed; NULL: the slot is free */
    struct answer *answer;
    int32_t *ids;                /* owned until the answer is freed */
    struct ngram_memory *memory; /* owned in the same way; NULL: none */
    struct buf text;
};

static int on_event(void *ud, const struct chat_event *ev) {
    struct slot *s = ud;
    return ev->kind == CHAT_CONTENT && buf_put(&s->text, ev->text, ev->n) ? 1 : 0;
}

static int start(struct slot *s, const json_t *item, const struct eval_host *h, struct err *e) {
    size_t n = 0;
    json_t *tools = json_object_get(item, "tools");
    s->ids = NULL;
    s->answer = NULL;
    int rc =
        h->encode(h->ud, json_object_get(item, "messages"), json_array_size(tools) ? tools : NULL,
                  json_is_true(json_object_get(item, "think")), &s->ids, &n, e);
    s->memory = NULL;
    if (!rc && h->remember)
        rc = h->remember(h->ud, json_object_get(item, "messages"), &s->memory, e);
    if (rc) {
        mem_free(s->ids);
        return rc;
    }
    buf_clear(&s->text);
    struct answer_params p = {.job.prompt = s->ids,
                              .job.n_prompt = (int32_t)n,
                              .job.max_tokens =
                                  (int32_t)json_integer_value(json_object_get(item, "max_tokens")),
                              .job.no_speculation = true,
                              .job.loras = h->loras,
                              .job.n_lora = h->n_lora,
                              .job.engram = ngram_memory_use(s->memory),
                              .on_event = on_event,
                              .ud = s};
    sampler_defaults(&p.job.sampling);
    p.job.sampling.temperature = 0;
    rc = answer_start(&s->answer, h->engine, h->tok, &p, e);
    if (rc) {
        ngram_memory_close(s->memory);
        mem_free(s->ids);
        s->ids = NULL;
        return rc;
    }
    s->item = item;
    return 0;
}

static void release(struct slot *s) {
    if (!s->item) return;
    answer_free(s->answer);
    ngram_memory_close(s->memory);
    mem_free(s->ids);
    s->item = NULL;
}

/* Scores a text by the item's rule. If the rule consists of a program's tests, the host runs them. */
static int score_text(const json_t *item, const struct buf *text, const struct eval_host *h,
                      struct score *sc, struct err *e) {
    int rc = score_answer(item, text->n ? text->p : "", text->n, sc, e);
    if (rc || !sc->is_program) return rc;
    if (!h->judge)
        return err_set(e, CHIMERE_EUNSUPPORTED, "check.kind python: programs are not run here");
    struct slice answer = score_visible(text->n ? text->p : "", text->n);
    return h->judge(item, answer.p, answer.n, &sc->right, e);
}

/* Makes the result row of an item. judged NULL: the text is scored here. */
static int make_row(json_t **out, const json_t *item, const struct buf *text, int64_t n_token,
                    const bool *judged, const struct eval_host *h, struct err *e) {
    struct score sc = {.right = judged && *judged};
    int rc = judged ? 0 : score_text(item, text, h, &sc, e);
    if (rc) return rc;
    json_t *row = *out = json_object();
    json_object_set(row, "id", json_object_get(item, "id"));
    json_object_set(row, "skill", json_object_get(item, "skill"));
    json_object_set_new(row, "right", json_boolean(sc.right));
    if (sc.has_valid) json_object_set_new(row, "valid", json_boolean(sc.valid));
    if (sc.is_verdict) json_object_set_new(row, "yes", json_boolean(sc.wants_yes));
    json_object_set_new(row, "n_tokens", json_integer(n_token));
    json_object_set_new(row, "text", json_stringn(text->n ? text->p : "", text->n));
    return 0;
}

/* Waits for the answer in a slot and appends its row to rows. */
static int finish(struct slot *s, json_t *rows, const struct eval_host *h, struct err *e) {
    answer_wait(s->answer);
    int rc = answer_err(s->answer)->code;
    json_t *row = NULL;
    if (rc && e) *e = *answer_err(s->answer);
    if (!rc)
        rc = make_row(&row, s->item, &s->text, answer_stats(s->answer)->n_generated, NULL, h, e);
    if (rc) err_prefix(e, "item %s", json_string_value(json_object_get(s->item, "id")));
    else json_array_append_new(rows, row);
    release(s);
    return rc;
}

/* ---- totals ---- */

struct tally {
    int64_t n, right, n_valid, valid, n_yes, right_yes, n_verdict;
};

static void count(struct tally *t, const json_t *row) {
    bool right = json_is_true(json_object_get(row, "right"));
    const json_t *valid = json_object_get(row, "valid"), *yes = json_object_get(row, "yes");
    t->n++;
    t->right += right;
    t->n_valid += valid != NULL;
    t->valid += json_is_true(valid);
    t->n_verdict += yes != NULL;
    t->n_yes += json_is_true(yes);
    t->right_yes += json_is_true(yes) && right;
}

static json_t *summary(const char *skill, const struct tally *t) {
    struct share s = stats_share(t->right, t->n);
    int64_t n_no = t->n - t->n_yes;
    if (t->n_verdict == t->n && t->n_yes && n_no)
        s = stats_mean(stats_share(t->right_yes, t->n_yes),
                       stats_share(t->right - t->right_yes, n_no));
    json_t *o = json_pack("{s:I, s:I, s:f, s:f, s:f}", "n", (json_int_t)t->n, "right",
                          (json_int_t)t->right, "score", s.value, "low", s.low, "high", s.high);
    if (skill) json_object_set_new(o, "skill", json_string(skill));
    if (skill && t->n_valid)
        json_object_set_new(o, "valid", json_real((double)t->valid / (double)t->n_valid));
    return o;
}

/* Returns the names of the skills, in order of first appearance. */
static json_t *skills_of(const json_t *rows) {
    json_t *names = json_object(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        const char *skill = json_string_value(json_object_get(row, "skill"));
        if (!json_object_get(names, skill)) json_object_set_new(names, skill, json_null());
    }
    return names;
}

static void summarise(json_t *run, const json_t *rows) {
    json_t *names = skills_of(rows), *list = json_array(), *unused, *row;
    struct tally all = {0};
    const char *skill;
    size_t i;
    json_object_foreach(names, skill, unused) {
        struct tally t = {0};
        json_array_foreach(rows, i, row) {
            if (strcmp(json_string_value(json_object_get(row, "skill")), skill) == 0)
                count(&t, row);
        }
        json_array_append_new(list, summary(skill, &t));
    }
    json_array_foreach(rows, i, row) { count(&all, row); }
    all.n_verdict = 0; /* the total counts answers, not verdicts */
    json_object_set_new(run, "skills", list);
    json_object_set_new(run, "total", summary(NULL, &all));
    json_decref(names);
}

/* ---- a run through a strategy ---- */

struct crew {
    const json_t *items; /* borrowed */
    const struct eval_host *h;
    json_t **rows; /* [n_item] */
    size_t next, n, done;
    pthread_mutex_t lock;
    int rc;
    struct err err;
};

/* Answers and scores one item. Until the row is stored, only this thread uses its objects. */
static int answer_one(struct crew *c, size_t i, json_t **row, struct err *e) {
    struct eval_answer a = {.ms = 0};
    const json_t *item = json_array_get(c->items, i);
    buf_init(&a.text, MAX_ANSWER);
    int rc = c->h->answer(c->h->ud, item, i, &a, e);
    int64_t n_token = a.n_thinking + a.n_answer + a.n_check;
    if (!rc) rc = make_row(row, item, &a.text, n_token, a.is_judged ? &a.right : NULL, c->h, e);
    if (rc) {
        err_prefix(e, "item %s", json_string_value(json_object_get(item, "id")));
    } else {
        json_object_set_new(*row, "n_thinking", json_integer(a.n_thinking));
        json_object_set_new(*row, "n_check", json_integer(a.n_check));
        json_object_set_new(*row, "ms", json_real(a.ms));
    }
    buf_fini(&a.text);
    return rc;
}

static void *work(void *arg) {
    struct crew *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->rc && c->next < c->n) {
        size_t i = c->next++;
        struct err e = {0};
        pthread_mutex_unlock(&c->lock);
        int rc = answer_one(c, i, &c->rows[i], &e);
        pthread_mutex_lock(&c->lock);
        if (rc && !c->rc) {
            c->rc = rc;
            c->err = e;
        }
        c->done++;
        if (c->h->what) progress_step(c->done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Runs the worker threads. Items share nothing except the reference counts of their own fields, and only one
 * thread uses an item. */
static int run_crew(struct crew *c, struct err *e) {
    pthread_t threads[MAX_SLOTS];
    int32_t n = c->h->n_worker < MAX_SLOTS ? c->h->n_worker : MAX_SLOTS, started = 0;
    pthread_mutex_init(&c->lock, NULL);
    while (started < n && !pthread_create(&threads[started], NULL, work, c)) started++;
    if (!started) work(c);
    for (int32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&c->lock);
    if (c->rc && e) *e = c->err;
    return c->rc;
}

static double mean_of(const json_t *rows, const char *key) {
    double sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) sum += json_number_value(json_object_get(row, key));
    return i ? sum / (double)i : 0;
}

static int run_strategy(json_t **run, const json_t *items, const struct eval_host *h,
                        const char *model, struct err *e) {
    struct crew c = {.items = items, .h = h, .n = json_array_size(items)};
    int64_t start = clock_ns();
    c.rows = mem_alloc_array(c.n + 1, sizeof *c.rows);
    json_t *rows = json_array();
    if (!c.rows || !rows) c.rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (h->what) progress_begin(h->what, c.n, false);
    if (!c.rc) run_crew(&c, e);
    if (h->what) progress_end();
    for (size_t i = 0; c.rows && i < c.n; i++)
        if (c.rows[i]) json_array_append_new(rows, c.rows[i]);
    if (!c.rc) {
        *run = json_object();
        json_object_set_new(*run, "model", json_string(model));
        summarise(*run, rows);
        json_t *total = json_object_get(*run, "total");
        json_object_set_new(total, "strategy", json_string(h->strategy));
        json_object_set_new(total, "n_tokens", json_real(mean_of(rows, "n_tokens")));
        json_object_set_new(total, "n_thinking", json_real(mean_of(rows, "n_thinking")));
        json_object_set_new(total, "n_check", json_real(mean_of(rows, "n_check")));
        json_object_set_new(total, "ms", json_real(mean_of(rows, "ms")));
        json_object_set_new(total, "seconds", json_real((double)clock_ms_since(start) / 1000));
        json_object_set(*run, "items", rows);
    }
    mem_free(c.rows);
    json_decref(rows);
    return c.rc;
}

/* ---- a run through the engine ---- */

int eval_run(json_t **run, const json_t *items, const struct eval_host *h, const char *model,
             struct err *e) {
    if (h->answer) return run_strategy(run, items, h, model, e);
    /* twice as many answers as sequences, so that a slow answer does not leave a sequence idle */
    size_t n_slot = h->n_seq < 1 ? 1 : (h->turn ? 1 : 2) * (size_t)h->n_seq,
           n = json_array_size(items), next = 0;
    if (n_slot > MAX_SLOTS) n_slot = MAX_SLOTS;
    struct slot *slots = mem_alloc_array(n_slot, sizeof *slots);
    json_t *rows = json_array();
    int rc = slots && rows ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; slots && i < n_slot; i++) buf_init(&slots[i].text, MAX_ANSWER);
    if (h->what) progress_begin(h->what, n, false);
    for (size_t done = 0, end = 0; !rc && done < n;) {
        if (!h->turn || done == end) end = done + n_slot;
        if (h->turn && next == done) rc = h->turn(h->ud, e);
        while (!rc && next < n && next < end) {
            rc = start(&slots[next % n_slot], json_array_get(items, next), h, e);
            next += !rc;
        }
        if (!rc) rc = finish(&slots[done % n_slot], rows, h, e);
        if (h->what) progress_step(++done);
        else done++;
    }
    if (h->what) progress_end();
    for (size_t i = 0; slots && i < n_slot; i++) {
        if (slots[i].item) answer_cancel(slots[i].answer);
        release(&slots[i]);
        buf_fini(&slots[i].text);
    }
    mem_free(slots);
    if (!rc) {
        *run = json_object();
        json_object_set_new(*run, "model", json_string(model));
        summarise(*run, rows);
        json_object_set(*run, "items", rows);
    }
    json_decref(rows);
    return rc;
}

/* ---- comparing two runs ---- */

struct pairs {
    int64_t n, a, b, only_a, only_b;
    struct cost { /* sums over pairs in which both runs report the value */
        int64_t n;
        double sums[2], squares[3];
    } tokens, thinking;
};

static json_t *cost_summary(const struct cost *c) {
    struct share s = stats_saved(c->n, c->sums, c->squares);
    double n = (double)c->n;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "a", c->sums[0] / n, "b", c->sums[1] / n, "saved",
                     s.value, "low", s.low, "high", s.high);
}

static json_t *pair_summary(const char *skill, const struct pairs *p) {
    double n = p->n ? (double)p->n : 1;
    json_t *o =
        json_pack("{s:I, s:f, s:f, s:I, s:I, s:f}", "n", (json_int_t)p->n, "a", (double)p->a / n,
                  "b", (double)p->b / n, "only_a", (json_int_t)p->only_a, "only_b",
                  (json_int_t)p->only_b, "p", stats_mcnemar(p->only_a, p->only_b));
    struct share gain = stats_pair(p->n, p->only_a, p->only_b);
    json_object_set_new(o, "gain", json_real(gain.value));
    json_object_set_new(o, "low", json_real(gain.low));
    json_object_set_new(o, "high", json_real(gain.high));
    if (p->tokens.n == p->n) json_object_set_new(o, "tokens", cost_summary(&p->tokens));
    if (p->thinking.n == p->n) json_object_set_new(o, "thinking", cost_summary(&p->thinking));
    if (skill) json_object_set_new(o, "skill", json_string(skill));
    return o;
}

static int check_run(const json_t *run, const char *which, struct err *e) {
    const json_t *items = json_object_get(run, "items");
    json_t *row;
    size_t i;
    if (!json_is_array(items))
        return err_set(e, CHIMERE_EFORMAT, "%s: expected a run saved by eval --json", which);
    json_array_foreach(items, i, row) {
        if (!json_is_string(json_object_get(row, "id")) ||
            !json_is_string(json_object_get(row, "skill")) ||
            !json_is_boolean(json_object_get(row, "right")))
            return err_set(e, CHIMERE_EFORMAT, "%s: item %zu: expected id, skill and right", which,
                           i);
    }
    return 0;
}

static void add_pair(struct pairs *p, bool a, bool b) {
    p->n++;
    p->a += a;
    p->b += b;
    p->only_a += a && !b;
    p->only_b += b && !a;
}

static void add_cost(struct cost *c, const json_t *a, const json_t *b, const char *key) {
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    if (!x || !y) return;
    double u = json_number_value(x), v = json_number_value(y);
    c->n++;
    c->sums[0] += u;
    c->sums[1] += v;
    c->squares[0] += u * u;
    c->squares[1] += u * v;
    c->squares[2] += v * v;
}

int eval_compare(json_t **out, const json_t *a, const json_t *b, struct err *e) {
    int rc = check_run(a, "first run", e);
    if (!rc) rc = check_run(b, "second run", e);
    if (rc) return rc;
    json_t *by_id = json_object(), *row, *unused, *list = json_array();
    const json_t *rows = json_object_get(a, "items");
    json_t *names = skills_of(rows);
    struct pairs all = {0};
    const char *skill;
    size_t i;
    json_array_foreach(json_object_get(b, "items"), i, row) {
        json_object_set(by_id, json_string_value(json_object_get(row, "id")), row);
    }
    json_object_foreach(names, skill, unused) {
        struct pairs p = {0};
        json_array_foreach(rows, i, row) {
            const json_t *other =
                json_object_get(by_id, json_string_value(json_object_get(row, "id")));
            if (!other || strcmp(json_string_value(json_object_get(row, "skill")), skill) != 0)
                continue;
            bool right = json_is_true(json_object_get(row, "right"));
            bool too = json_is_true(json_object_get(other, "right"));
            add_pair(&p, right, too);
            add_pair(&all, right, too);
            add_cost(&all.tokens, row, other, "n_tokens");
            add_cost(&all.thinking, row, other, "n_thinking");
        }
        if (p.n) json_array_append_new(list, pair_summary(skill, &p));
    }
    json_decref(names);
    json_decref(by_id);
    if (!all.n) {
        json_decref(list);
        return err_set(e, CHIMERE_EMISMATCH, "the two runs have no item in common");
    }
    *out = json_object();
    json_object_set_new(*out, "skills", list);
    json_object_set_new(*out, "total", pair_summary(NULL, &all));
    return 0;
}
