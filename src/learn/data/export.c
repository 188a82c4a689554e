#include "learn/data/export.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "learn/data/collect.h"
#include "learn/data/votes.h"

enum { LENGTH_RATIO = 2, GOOD_RATING = 4 };

/* Writes one line and takes ownership of it. NULL: the texts were not UTF-8; counted as left out. */
static int put_line(FILE *f, json_t *line, struct learn_exported *out, struct err *e) {
    if (!line) {
        out->n_left++;
        return 0;
    }
    int rc = json_dumpf(line, f, JSON_COMPACT | JSON_REAL_PRECISION(6)) || putc('\n', f) == EOF;
    json_decref(line);
    out->n_line += !rc;
    return rc ? err_set(e, CHIMERE_EIO, "the lines cannot be written; is the disk full?") : 0;
}

int learn_export_sft(FILE *f, struct store *store, double least, struct learn_exported *out,
                     struct err *e) {
    struct learn_day day;
    *out = (struct learn_exported){.n_line = 0};
    int rc = learn_collect(&day, store, (struct learn_spans){NULL, 0}, least, e);
    if (rc) return rc;
    out->n_held = day.n_held;
    out->n_secret = day.n_secret;
    for (size_t i = 0; !rc && i < day.n; i++) {
        const struct learn_item *x = &day.v[i];
        if (x->held_out) continue;
        rc = put_line(f,
                      json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:f}", "messages", "role", "user",
                                "content", x->question, "role", "assistant", "content", x->answer,
                                "score", x->worth),
                      out, e);
    }
    learn_day_fini(&day);
    return rc;
}

/* ---- pairs ---- */

struct pairs {
    FILE *f;
    struct learn_exported *out;
    uint64_t *seen; /* owned [COLLECT_MAX_ITEMS]: hashes of the questions written so far */
    size_t n_seen;
    const struct votes *votes; /* borrowed: when questions were first asked */
    bool is_spin;
    struct err *e;
};

/* Returns true if a user wrote the answer, or rated it as good. A verdict of the verifier does not suffice. */
static bool is_accepted(const struct store_quality *q) {
    return (q->origin && !strcmp(q->origin, "correction")) || q->feedback >= GOOD_RATING;
}

static bool fits(const struct pairs *p, const struct store_quality *better,
                 const struct store_quality *worse) {
    if (!better->question || !better->answer || !worse->answer) return false;
    size_t a = strlen(better->answer), b = strlen(worse->answer);
    if (p->is_spin && (!is_accepted(better) || is_accepted(worse))) return false;
    if (!p->is_spin && (a >= LENGTH_RATIO * b || b >= LENGTH_RATIO * a)) return false;
    return a && b && a <= COLLECT_MAX_TEXT && b <= COLLECT_MAX_TEXT &&
           strlen(better->question) <= COLLECT_MAX_TEXT &&
           learn_text_hash(better->answer) != learn_text_hash(worse->answer);
}

static bool is_new(struct pairs *p, uint64_t question) {
    for (size_t i = 0; i < p->n_seen; i++)
        if (p->seen[i] == question) return false;
    if (p->n_seen == COLLECT_MAX_ITEMS) return false;
    p->seen[p->n_seen++] = question;
    return true;
}

static json_t *dpo_line(const char *question, const char *chosen, const char *rejected,
                        const struct store_quality *better, const struct store_quality *worse) {
    return json_pack("{s:s,s:s,s:s,s:f,s:f,s:s}", "prompt", question, "chosen", chosen, "rejected",
                     rejected, "score_chosen", store_quality_worth(better), "score_rejected",
                     store_quality_worth(worse), "model", better->model);
}

/* The form that the program of SPIN's authors reads. */
static json_t *spin_line(const char *question, const char *real, const char *generated,
                         const struct store_quality *worse) {
    return json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:[{s:s,s:s},{s:s,s:s}],s:s}", "real", "role",
                     "user", "content", question, "role", "assistant", "content", real, "generated",
                     "role", "user", "content", question, "role", "assistant", "content", generated,
                     "model", worse->model);
}

static int put_pair(struct pairs *p, const struct store_quality *better,
                    const struct store_quality *worse, const char *question) {
    char *chosen = learn_masked(better->answer, &p->out->n_secret);
    char *rejected = learn_masked(worse->answer, &p->out->n_secret);
    int rc = chosen && rejected ? 0 : err_set(p->e, CHIMERE_ENOMEM, "out of memory");
    if (!rc)
        rc = put_line(p->f,
                      p->is_spin ? spin_line(question, chosen, rejected, worse)
                                 : dpo_line(question, chosen, rejected, better, worse),
                      p->out, p->e);
    mem_free(chosen);
    mem_free(rejected);
    return rc;
}

static int each_pair(void *ud, const struct store_quality *better,
                     const struct store_quality *worse) {
    struct pairs *p = ud;
    size_t n_secret = 0;
    int64_t first_ms;
    if (!fits(p, better, worse)) {
        p->out->n_left++;
        return 0;
    }
    first_ms = votes_first_ms(p->votes, learn_text_hash(better->question));
    char *question = learn_masked(better->question, &n_secret);
    if (!question) return err_set(p->e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    if (!is_new(p, learn_text_hash(question))) {
        p->out->n_left++;
    } else if (learn_holds_out(question, first_ms)) {
        p->out->n_held++;
    } else {
        p->out->n_secret += n_secret;
        rc = put_pair(p, better, worse, question);
    }
    mem_free(question);
    return rc;
}

static int export_pairs(FILE *f, struct store *store, double gap, bool is_spin,
                        struct learn_exported *out, struct err *e) {
    *out = (struct learn_exported){.n_line = 0};
    struct learn_day day;
    int rc = learn_collect(&day, store, (struct learn_spans){NULL, 0}, 0, e);
    if (rc) return rc;
    struct pairs p = {.f = f, .out = out, .votes = day.votes, .is_spin = is_spin, .e = e};
    p.seen = mem_alloc_array(COLLECT_MAX_ITEMS, sizeof *p.seen);
    rc = p.seen ? store_quality_pairs(store, 0, gap, each_pair, &p, e)
                : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(p.seen);
    learn_day_fini(&day);
    return rc;
}

int learn_export_dpo(FILE *f, struct store *store, double gap, struct learn_exported *out,
                     struct err *e) {
    return export_pairs(f, store, gap, false, out, e);
}

int learn_export_spin(FILE *f, struct store *store, struct learn_exported *out, struct err *e) {
    return export_pairs(f, store, 0, true, out, e);
}
