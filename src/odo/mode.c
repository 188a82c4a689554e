#include "odo/mode.h"

#include "backend/call.h"

int mode_probe(struct backend *b, const struct request *a, _Atomic bool *cancelled,
               int64_t deadline_ns, struct mode_probe *out, struct err *e) {
    struct request q = *a; /* shallow copy: its arrays belong to the caller */
    struct call_result r;
    *out = (struct mode_probe){.n_token = 0};
    q.n = 1;
    q.think = false;
    q.max_tokens = MODE_PROBE_TOKENS;
    q.n_stop = 0;
    q.probs = true;
    q.progress = false;
    q.sampling.temperature = 0;
    q.sampling.n_probs = 1;
    struct call c = {
        .backend = b, .request = &q, .cancelled = cancelled, .deadline_ns = deadline_ns};
    int rc = call_run(&c, &r, e);
    if (!rc && r.n_token > 0) {
        out->n_token = r.n_token;
        out->mean = r.entropy / r.n_token;
        out->first = r.first_entropy;
    } else if (!rc) {
        rc = err_set(e, CHIMERE_ENOENT, "the probe got no tokens with probabilities");
    }
    out->stats = r.stats;
    call_fini(&r);
    return rc;
}

enum difficulty_mode mode_choose(const struct difficulty *d, const struct mode_probe *p,
                                 const struct limits *limits) {
    const struct limits usual = limits_default(), *l = limits ? limits : &usual;
    if (!p || p->n_token < 1) return d->mode;
    /* The first token is often only a choice between synonyms, so it gets no extra weight in the mean. A difficult text is thought about even if the model is sure. An easy text is thought about if the model is
     * unsure. */
    if (p->mean <= l->v[LIMIT_SURE])
        return d->class == DIFFICULTY_HIGH ? DIFFICULTY_QUALITY : DIFFICULTY_FAST;
    if (p->mean >= l->v[LIMIT_UNSURE]) return DIFFICULTY_ULTRA;
    return d->class == DIFFICULTY_HIGH ? DIFFICULTY_ULTRA : DIFFICULTY_QUALITY;
}

void mode_apply(enum difficulty_mode m, struct request *a) {
    think_preset(difficulty_mode_name(m), &a->think, &a->sampling.think);
}
