/* sampler.c: the sampler chain. It has two tables: processors that change the whole row of logits, and filters over the
 * sorted candidates that remain. For most requests, the only cost is one pass over the row that finds its largest
 * values. The row is copied only if a processor changes it. */
#include "engine/sampler/sampler.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler/sampler_impl.h"

enum { MAX_HISTORY = 1 << 16, MAX_HOOKS = 4 };

/* Candidates less likely than e^-30 times the best one are never drawn. */
static const float cut_nats = 30;

void sampler_defaults(struct sampler_params *p) {
    *p = (struct sampler_params){.temperature = 0.7f,
                                 .dynatemp_exponent = 1,
                                 .top_k = 20,
                                 .top_p = 0.8f,
                                 .typical_p = 1,
                                 .xtc_threshold = 0.1f,
                                 .mirostat_tau = 5,
                                 .mirostat_eta = 0.1f,
                                 .repeat_penalty = 1,
                                 .penalty_last_n = 64,
                                 .dry_base = 1.75f,
                                 .dry_allowed_length = 2,
                                 .dry_last_n = -1,
                                 .min_keep = 1,
                                 .think_budget = -1};
    think_defaults(&p->think);
}

/* Name and bounds of every numeric parameter. */
#define BOUNDS(X)                                                                                  \
    X(temperature, 0, 100)                                                                         \
    X(dynatemp_range, 0, 100)                                                                      \
    X(dynatemp_exponent, 0, 100)                                                                   \
    X(top_k, 0, 1 << 30)                                                                           \
    X(top_p, 0, 1)                                                                                 \
    X(min_p, 0, 1)                                                                                 \
    X(typical_p, 0, 1)                                                                             \
    X(top_n_sigma, -1, 1000)                                                                       \
    X(xtc_probability, 0, 1)                                                                       \
    X(xtc_threshold, 0, 1)                                                                         \
    X(mirostat, 0, 2)                                                                              \
    X(mirostat_tau, 0, 100)                                                                        \
    X(mirostat_eta, 0, 1)                                                                          \
    X(repeat_penalty, 0.01, 100)                                                                   \
    X(frequency_penalty, -100, 100)                                                                \
    X(presence_penalty, -100, 100)                                                                 \
    X(penalty_last_n, -1, 1 << 30)                                                                 \
    X(dry_multiplier, 0, 100)                                                                      \
    X(dry_base, 0, 100)                                                                            \
    X(dry_allowed_length, 0, 1 << 30)                                                              \
    X(dry_last_n, -1, 1 << 30)                                                                     \
    X(think.window, 1, THINK_MAX_WINDOW)                                                           \
    X(think.min_tokens, 0, 1 << 30)                                                                \
    X(think.stop, 0, 2)                                                                            \
    X(think.unsure, 0, 1)                                                                          \
    X(think.extend, 0, THINK_MAX_EXTEND)                                                           \
    X(think.suppress, 0, 2)                                                                        \
    X(n_probs, 0, SAMPLER_MAX_PROBS)                                                               \
    X(min_keep, 1, 1 << 30)

int sampler_check(const struct sampler_params *p, int32_t n_vocab, struct err *e) {
#define X(field, low, high)                                                                        \
    if (!((double)p->field >= (double)(low) && (double)p->field <= (double)(high)))                \
        return err_set(e, CHIMERE_EINVAL, #field ": expected %g to %g, got %g", (double)(low),     \
                       (double)(high), (double)p->field);
    BOUNDS(X)
#undef X
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= n_vocab)
            return err_set(e, CHIMERE_EINVAL, "logit_bias: expected token ids below %d, got %d",
                           n_vocab, p->bias[i].token);
        if (isnan(p->bias[i].bias))
            return err_set(e, CHIMERE_EINVAL, "logit_bias: expected a number");
    }
    if (p->think_budget >= 0 && !p->n_think_end)
        return err_set(e, CHIMERE_EINVAL,
                       "thinking budget: this model has no end-of-thinking token");
    if (think_is_on(&p->think) && p->think.vocab->n_vocab > n_vocab)
        return err_set(e, CHIMERE_EMISMATCH, "think: classes of %d tokens for a model of %d",
                       p->think.vocab->n_vocab, n_vocab);
    return 0;
}

/* ---- processors, over the whole row of logits ---- */

static void apply_bias(struct sampler *s) {
    for (size_t i = 0; i < s->p.n_bias; i++) s->work[s->p.bias[i].token] += s->p.bias[i].bias;
    if (!s->p.ignore_eos && s->n_taken >= s->p.min_tokens) return;
    for (int32_t i = 0; i < s->n_eog; i++) s->work[s->eog[i]] = -INFINITY;
}
static bool on_bias(const struct sampler *s) {
    return s->p.n_bias || ((s->p.ignore_eos || s->n_taken < s->p.min_tokens) && s->n_eog);
}

static bool list_bias(struct sampler *s, struct sampler_list *l) {
    for (size_t i = 0; i < s->p.n_bias; i++)
        if (!sampler_list_add(s, l, s->p.bias[i].token)) return false;
    if (!s->p.ignore_eos && s->n_taken >= s->p.min_tokens) return true;
    for (int32_t i = 0; i < s->n_eog; i++)
        if (!sampler_list_add(s, l, s->eog[i])) return false;
    return true;
}
static void apply_bias_few(struct sampler *s) {
    apply_bias(s);
    s->few.has_sums = false;
}

static bool on_think(const struct sampler *s) { return sampler_think_forced(s) >= 0; }
static void apply_think(struct sampler *s) {
    int32_t token = sampler_think_forced(s);
    float keep = s->work[token];
    for (int32_t i = 0; i < s->n_vocab; i++) s->work[i] = -INFINITY;
    s->work[token] = isfinite(keep) ? keep : 0;
}

static void apply_think_few(struct sampler *s) {
    int32_t token = sampler_think_forced(s);
    bool known = s->few.known[token / 64] >> (token % 64) & 1;
    if (!known || !isfinite(s->work[token])) s->work[token] = 0;
    s->few.ids[0] = token;
    s->few.n = 1;
    s->few.least = -INFINITY;
    s->few.has_sums = false;
}

static bool on_reflection(const struct sampler *s) { return sampler_think_suppresses(s); }
static void apply_reflection(struct sampler *s) { sampler_think_suppress(s); }

static bool grammar_rules(const struct sampler *s) {
    if (!s->grammar) return false;
    if (s->p.n_trigger) return s->lazy.is_on && !s->think.inside;
    return !(s->p.grammar_after_think && s->think.inside);
}
static bool on_grammar(const struct sampler *s) { return grammar_rules(s) && !on_think(s); }
static bool make_mask(struct sampler *s) {
    if (!s->is_mask_ready && grammar_mask(s->grammar, s->mask)) s->failed = CHIMERE_ELIMIT;
    s->is_mask_ready = !s->failed;
    return s->is_mask_ready;
}
static void apply_grammar(struct sampler *s) {
    if (!make_mask(s)) return;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (!(s->mask[i / 64] >> (i % 64) & 1)) s->work[i] = -INFINITY;
}
static void apply_grammar_few(struct sampler *s) {
    if (!make_mask(s)) return;
    for (int32_t i = 0; i < s->few.n; i++) {
        int32_t id = s->few.ids[i];
        if (!(s->mask[id / 64] >> (id % 64) & 1)) s->work[id] = -INFINITY;
    }
}

static bool hook_wants(const struct sampler *s, const struct sampler_hook *h) {
    return (h->in_thinking || !s->think.inside) && (!h->wants || h->wants(h->ud));
}
static bool on_hooks(const struct sampler *s) {
    for (int i = 0; i < s->n_hook; i++)
        if (hook_wants(s, &s->hooks[i])) return true;
    return false;
}
static void apply_hooks(struct sampler *s) {
    for (int i = 0; i < s->n_hook; i++)
        if (hook_wants(s, &s->hooks[i])) s->hooks[i].apply(s->hooks[i].ud, s->work, s->n_vocab);
}

/* After draft tokens it is not known whether a hook will change something, so all tokens that it might touch are
 * listed. */
static bool list_hooks(struct sampler *s, struct sampler_list *l) {
    int32_t room[SELECT_MAX_IDS];
    for (int i = 0; i < s->n_hook; i++) {
        const struct sampler_hook *h = &s->hooks[i];
        if (l->n_ahead ? !h->in_thinking && s->think.inside : !hook_wants(s, h)) continue;
        if (!h->list || !h->apply_few) return false;
        int32_t n = h->list(h->ud, l->ahead, l->n_ahead, room, SELECT_MAX_IDS);
        if (n < 0) return false;
        for (int32_t k = 0; k < n; k++)
            if (!sampler_list_add(s, l, room[k])) return false;
    }
    return true;
}
static void apply_hooks_few(struct sampler *s) {
    for (int i = 0; i < s->n_hook; i++) {
        const struct sampler_hook *h = &s->hooks[i];
        if (!hook_wants(s, h)) continue;
        if (s->few.has_sums) h->apply_few(h->ud, s->work, &s->few.sums);
        else s->failed = SAMPLER_WHOLE;
        s->few.has_sums = false;
    }
}

static bool on_penalties(const struct sampler *s) {
    return s->n_history &&
           (s->p.repeat_penalty != 1 || s->p.frequency_penalty != 0 || s->p.presence_penalty != 0);
}
static void apply_penalties(struct sampler *s) {
    int32_t n = s->p.penalty_last_n < 0 || s->p.penalty_last_n > s->n_history ? s->n_history
                                                                              : s->p.penalty_last_n;
    const int32_t *recent = s->history + s->n_history - n;
    for (int32_t i = 0; i < n; i++) s->counts[recent[i]]++;
    for (int32_t i = 0; i < n; i++) {
        int32_t t = recent[i], count = s->counts[t];
        if (!count) continue; /* the token was penalized at its first occurrence */
        float *x = &s->work[t];
        *x = *x > 0 ? *x / s->p.repeat_penalty : *x * s->p.repeat_penalty;
        *x -= s->p.frequency_penalty * (float)count + s->p.presence_penalty;
        s->counts[t] = 0;
    }
}

/* Lists the newest n tokens of the text (-1: all) and the draft tokens ahead. */
static bool list_recent(struct sampler *s, struct sampler_list *l, int32_t n) {
    if (n < 0 || n > s->n_history) n = s->n_history;
    for (int32_t i = s->n_history - n; i < s->n_history; i++)
        if (!sampler_list_add(s, l, s->history[i])) return false;
    for (int32_t i = 0; i < l->n_ahead; i++)
        if (!sampler_list_add(s, l, l->ahead[i])) return false;
    return true;
}
static bool list_penalties(struct sampler *s, struct sampler_list *l) {
    bool neutral =
        s->p.repeat_penalty == 1 && s->p.frequency_penalty == 0 && s->p.presence_penalty == 0;
    return neutral || list_recent(s, l, s->p.penalty_last_n);
}
static bool list_dry(struct sampler *s, struct sampler_list *l) {
    bool neutral = !(s->p.dry_multiplier > 0 && s->p.dry_base >= 1);
    return neutral || list_recent(s, l, s->p.dry_last_n);
}

static bool on_dry(const struct sampler *s) {
    return s->p.dry_multiplier > 0 && s->p.dry_base >= 1 && s->n_history > 1;
}
/* DRY (p-e-w, text-generation-webui PR 5677): a token that would continue a sequence that already occurred in the
 * context loses multiplier * base^(length - allowed). Lengths are computed by the Z-function of the reversed context,
 * cut at the last breaker. */
static void apply_dry(struct sampler *s) {
    int32_t n =
        s->p.dry_last_n < 0 || s->p.dry_last_n > s->n_history ? s->n_history : s->p.dry_last_n;
    const int32_t *h = s->history + s->n_history - n;
    int32_t limit = 0; /* tokens since the last breaker */
    while (limit < n && !s->breaks[s->n_history - 1 - limit]) limit++;
    if (limit < s->p.dry_allowed_length) return;
    int32_t *z = s->z, left = 0, right = 0;
    for (int32_t i = 1; i < n; i++) {
        int32_t len = i < right ? (z[i - left] < right - i ? z[i - left] : right - i) : 0;
        while (i + len < n && h[n - 1 - len] == h[n - 1 - i - len]) len++;
        z[i] = len;
        if (i + len > right) left = i, right = i + len;
        int32_t match = len < limit ? len : limit, next = h[n - i];
        if (match >= s->p.dry_allowed_length && match > 0 && match > s->counts[next])
            s->counts[next] = match;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t t = h[i], match = s->counts[t];
        if (!match) continue;
        s->counts[t] = 0;
        float exponent = (float)(match - s->p.dry_allowed_length);
        s->work[t] -= s->p.dry_multiplier * powf(s->p.dry_base, exponent < 60 ? exponent : 60);
    }
}

const struct sampler_processor sampler_processors[SAMPLER_N_PROCESSOR] = {
    {"logit bias", on_bias, apply_bias, list_bias, apply_bias_few},
    {"thinking", on_think, apply_think, NULL, apply_think_few},
    {"reflection", on_reflection, apply_reflection, NULL, NULL}, /* needs the whole row */
    {"grammar", on_grammar, apply_grammar, NULL, apply_grammar_few},
    {"mixture", on_hooks, apply_hooks, list_hooks, apply_hooks_few},
    {"penalties", on_penalties, apply_penalties, list_penalties, NULL},
    {"dry", on_dry, apply_dry, list_dry, NULL},
};

/* ---- filters, over candidates that are sorted as far as needed ---- */

static void renormalise(struct sampler *s) {
    double sum = 0;
    for (int32_t i = 0; i < s->n_cand; i++) sum += s->cand[i].p;
    for (int32_t i = 0; i < s->n_cand; i++) s->cand[i].p = (float)(s->cand[i].p / sum);
}

/* The i-th candidate, from the most likely one on. */
static struct cand *ranked(struct sampler *s, int32_t i) {
    sampler_order(s, i + 1);
    return &s->cand[i];
}

static void keep_first(struct sampler *s, int32_t n) {
    if (n < s->p.min_keep) n = s->p.min_keep;
    if (n < s->n_cand) {
        sampler_order(s, n);
        s->n_cand = s->n_ordered = n;
        renormalise(s);
    }
}

static bool on_typical(const struct sampler *s) { return s->p.typical_p < 1; }
static int by_typicality(const void *a, const void *b) {
    const struct cand *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key ? 1 : x->id - y->id;
}
/* Locally typical sampling (Meister et al., arXiv:2202.00666). */
static void apply_typical(struct sampler *s) {
    double entropy = 0;
    for (int32_t i = 0; i < s->n_cand; i++)
        if (s->cand[i].p > 0) entropy -= s->cand[i].p * log(s->cand[i].p);
    for (int32_t i = 0; i < s->n_cand; i++)
        s->cand[i].key = s->cand[i].p > 0 ? (float)fabs(-log(s->cand[i].p) - entropy) : INFINITY;
    sampler_sort(s->cand, s->n_cand, by_typicality);
    double sum = 0;
    int32_t n = 0;
    while (n < s->n_cand && (n < s->p.min_keep || sum < s->p.typical_p)) sum += s->cand[n++].p;
    s->n_cand = n;
    s->n_ordered = 0;
    renormalise(s);
}

static bool on_top_p(const struct sampler *s) { return s->p.top_p < 1; }
static void apply_top_p(struct sampler *s) {
    double sum = 0;
    int32_t n = 0;
    while (n < s->n_cand && (n == 0 || sum < s->p.top_p)) sum += ranked(s, n++)->p;
    keep_first(s, n);
}

static bool on_min_p(const struct sampler *s) { return s->p.min_p > 0; }
static void apply_min_p(struct sampler *s) {
    float least = ranked(s, 0)->p * s->p.min_p;
    int32_t n = 1;
    while (n < s->n_cand && ranked(s, n)->p >= least) n++;
    keep_first(s, n);
}

static bool on_xtc(const struct sampler *s) {
    return s->p.xtc_probability > 0 && s->p.xtc_threshold <= 0.5f && s->n_cand > 1;
}
/* XTC (p-e-w, text-generation-webui PR 6335): with the given probability, all candidates above the threshold are
 * removed except the least likely of them. */
static void apply_xtc(struct sampler *s) {
    if (rng_uniform(&s->rng) >= s->p.xtc_probability) return;
    int32_t last = -1;
    for (int32_t i = 0; i < s->n_cand && ranked(s, i)->p >= s->p.xtc_threshold; i++) last = i;
    if (last < 1 || s->n_cand - last < s->p.min_keep) return;
    memmove(s->cand, s->cand + last, (size_t)(s->n_cand - last) * sizeof *s->cand);
    s->n_cand -= last;
    s->n_ordered -= last;
    renormalise(s);
}

static bool on_temperature(const struct sampler *s) {
    return s->p.temperature != 1 || s->p.dynatemp_range > 0;
}
static void apply_temperature(struct sampler *s) {
    float t = s->p.temperature;
    if (s->p.dynatemp_range > 0 && s->n_cand > 1) {
        double entropy = 0;
        for (int32_t i = 0; i < s->n_cand; i++)
            if (s->cand[i].p > 0) entropy -= s->cand[i].p * log(s->cand[i].p);
        float low = t > s->p.dynatemp_range ? t - s->p.dynatemp_range : 0,
              high = t + s->p.dynatemp_range;
        t = low + (high - low) * powf((float)(entropy / log(s->n_cand)), s->p.dynatemp_exponent);
    }
    if (t < 1e-4f) {
        ranked(s, 0)->p = 1;
        s->n_cand = s->n_ordered = 1;
        return;
    }
    sampler_softmax(s, t);
}

static const struct {
    const char *name;
    bool (*on)(const struct sampler *s);
    void (*apply)(struct sampler *s);
} filters[] = {
    {"typical", on_typical, apply_typical},
    {"top-p", on_top_p, apply_top_p},
    {"min-p", on_min_p, apply_min_p},
    {"xtc", on_xtc, apply_xtc},
    {"temperature", on_temperature, apply_temperature},
};
enum { N_FILTER = sizeof filters / sizeof *filters };

/* ---- drawing ---- */

static int32_t draw(struct sampler *s) {
    double u = rng_uniform(&s->rng), sum = 0;
    for (int32_t i = 0; i < s->n_cand; i++) {
        sum += ranked(s, i)->p;
        if (u < sum) return i;
    }
    return s->n_cand - 1;
}

/* Mirostat (Basu et al., arXiv:2007.14966): keeps the surprise of the text near tau. Version 1 cuts at a k that it
 * estimates from the Zipf exponent of the 100 best; version 2 cuts at the surprise itself. */
static int32_t draw_mirostat(struct sampler *s) {
    sampler_softmax(s, s->p.temperature);
    int32_t n = s->n_cand;
    if (s->p.mirostat == 1) {
        double num = 0, den = 0;
        sampler_order(s, 100);
        for (int32_t i = 0; i < 99 && i + 1 < s->n_cand; i++) {
            double t = log((i + 2.0) / (i + 1.0)), b = log(s->cand[i].p / s->cand[i + 1].p);
            num += t * b;
            den += t * t;
        }
        double zipf = den > 0 ? num / den : 1, eps = zipf - 1;
        double k = pow(eps * pow(2, s->mu) / (1 - pow(s->n_vocab, -eps)), 1 / zipf);
        n = isfinite(k) && k >= 1 ? (k < s->n_cand ? (int32_t)k : s->n_cand) : 1;
    } else {
        n = 0;
        while (n < s->n_cand && (n == 0 || -log2(ranked(s, n)->p) <= s->mu)) n++;
    }
    sampler_order(s, n);
    s->n_cand = s->n_ordered = n;
    renormalise(s);
    int32_t i = draw(s);
    s->mu -= s->p.mirostat_eta * (float)(-log2(s->cand[i].p) - s->p.mirostat_tau);
    return i;
}

void sampler_probs_of(const float *logits, int32_t n_vocab, int32_t token, int32_t n,
                      struct sampler_probs *out) {
    double sum = 0;
    float max = -INFINITY;
    *out = (struct sampler_probs){.n = 0};
    if (n > SAMPLER_MAX_PROBS) n = SAMPLER_MAX_PROBS;
    for (int32_t i = 0; i < n_vocab; i++)
        if (logits[i] > max) max = logits[i];
    for (int32_t i = 0; i < n_vocab; i++) {
        sum += exp((double)(logits[i] - max));
        int32_t at = out->n < n ? out->n : n - 1; /* its place among the best so far */
        if (n < 1 || (out->n == n && !(logits[i] > out->logprobs[at]))) continue;
        if (out->n < n) out->n++;
        for (; at > 0 && logits[i] > out->logprobs[at - 1]; at--) {
            out->logprobs[at] = out->logprobs[at - 1];
            out->ids[at] = out->ids[at - 1];
        }
        out->logprobs[at] = logits[i];
        out->ids[at] = i;
    }
    double lse = (double)max + log(sum);
    out->chosen = (float)(logits[token] - lse);
    for (int32_t i = 0; i < out->n; i++) out->logprobs[i] = (float)(out->logprobs[i] - lse);
}

/* Reports the model's own distribution, before any processor. */
static void report(struct sampler *s, const float *logits, float max, int32_t chosen,
                   struct sampler_probs *out) {
    double sum = 0, weighted = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double x = logits[i] - max, p = exp(x);
        sum += p;
        if (p > 0) weighted += p * x;
    }
    double lse = log(sum);
    out->entropy = (float)(lse - weighted / sum);
    out->chosen = (float)(logits[chosen] - max - lse);
    out->n = s->p.n_probs < s->n_vocab ? s->p.n_probs : s->n_vocab;
    int32_t n = sampler_top(s, logits, out->n, -INFINITY);
    sampler_sort(s->cand, n, sampler_by_logit);
    out->n = n;
    for (int32_t i = 0; i < n; i++) {
        out->ids[i] = s->cand[i].id;
        out->logprobs[i] = (float)(s->cand[i].logit - max - lse);
    }
}

float sampler_cut(const struct sampler *s, float max) {
    return max - cut_nats * (s->p.temperature > 1 ? s->p.temperature : 1);
}

int32_t sampler_k(const struct sampler *s) {
    int32_t k = s->p.top_k > 0 && !s->p.mirostat ? s->p.top_k : s->n_vocab;
    if (k < s->p.min_keep) k = s->p.min_keep;
    return k < s->n_vocab ? k : s->n_vocab;
}

int32_t sampler_draw(struct sampler *s, int32_t n) {
    s->n_cand = n;
    s->n_ordered = 0;
    sampler_softmax(s, 1);
    if (s->p.mirostat) return s->cand[draw_mirostat(s)].id;
    for (int i = 0; i < N_FILTER; i++)
        if (filters[i].on(s)) filters[i].apply(s);
    return s->cand[draw(s)].id;
}

/* Collects the candidates from a row whose largest value is max. Returns how many. */
static int32_t gather(struct sampler *s, const float *row, float max) {
    float cut = sampler_cut(s, max);
    if (s->p.top_n_sigma > 0) {
        float least = max - s->p.top_n_sigma * sampler_deviation(row, s->n_vocab);
        if (least > cut) cut = least;
    }
    return sampler_top(s, row, sampler_k(s), cut);
}

static int32_t choose(struct sampler *s, const float *row, float max) {
    if (s->p.temperature <= 0) return sampler_find(row, s->n_vocab, max);
    return sampler_draw(s, gather(s, row, max));
}

int32_t sampler_pick(struct sampler *s, const float *logits, struct sampler_probs *probs) {
    float max;
    if (!sampler_max(logits, s->n_vocab, &max)) return CHIMERE_ENUMERIC;
    float own_max = max;
    const float *row = logits;
    s->failed = 0;
    sampler_think_look(s, logits, max);
    for (int i = 0; i < SAMPLER_N_PROCESSOR; i++) {
        if (!sampler_processors[i].on(s)) continue;
        if (row == logits) {
            memcpy(s->work, logits, (size_t)s->n_vocab * sizeof *s->work);
            row = s->work;
        }
        sampler_processors[i].apply(s);
    }
    if (s->failed) return s->failed;
    if (row != logits && !sampler_max(row, s->n_vocab, &max)) return CHIMERE_ENUMERIC;
    int32_t chosen = choose(s, row, max);
    /* then pick again as if the token had been masked */
    while (sampler_trigger_refuses(s, chosen)) {
        if (row == logits) memcpy(s->work, logits, (size_t)s->n_vocab * sizeof *s->work);
        row = s->work;
        s->work[chosen] = -INFINITY;
        if (!sampler_max(row, s->n_vocab, &max)) return CHIMERE_ENUMERIC;
        chosen = choose(s, row, max);
    }
    chosen = sampler_think_settle(s, logits, own_max, chosen);
    if (probs) report(s, logits, own_max, chosen, probs);
    return chosen;
}

/* ---- state ---- */

static void remember(struct sampler *s, int32_t token) {
    if (token < 0 || token >= s->n_vocab || !s->history) return;
    if (s->n_history == MAX_HISTORY) { /* drop the older half */
        int32_t half = MAX_HISTORY / 2;
        memmove(s->history, s->history + half, (size_t)half * sizeof *s->history);
        memmove(s->breaks, s->breaks + half, (size_t)half);
        s->n_history = half;
    }
    s->breaks[s->n_history] = s->tok && sampler_is_breaker(s, token);
    s->history[s->n_history++] = token;
}

static void accept_grammar(struct sampler *s, int32_t token) {
    if (grammar_rules(s)) {
        bool left = grammar_accept_token(s->grammar, token) != 0;
        if (!s->p.n_trigger) s->grammar_left |= left;
        else if (left || grammar_is_complete(s->grammar)) sampler_trigger_reset(s);
    } else if (s->p.n_trigger && !s->think.inside) {
        sampler_trigger_accept(s, token);
    }
}

void sampler_accept(struct sampler *s, int32_t token) {
    remember(s, token);
    s->n_taken++;
    s->is_mask_ready = false;
    accept_grammar(s, token);
    bool thought = s->think.inside;
    sampler_think_accept(s, token);
    thought |= s->think.inside;
    for (int i = 0; i < s->n_hook; i++)
        if (s->hooks[i].accept && (s->hooks[i].in_thinking || !thought))
            s->hooks[i].accept(s->hooks[i].ud, token);
}

bool sampler_draft_begin(struct sampler *s) {
    if (!on_grammar(s) || s->grammar_left) return false;
    s->draft_mark = grammar_mark(s->grammar);
    return true;
}

int32_t sampler_draft_forced(struct sampler *s) { return grammar_forced_token(s->grammar); }

size_t sampler_draft_bytes(struct sampler *s, char *out, size_t max) {
    return grammar_forced(s->grammar, out, max);
}

bool sampler_draft_push(struct sampler *s, int32_t token) {
    return grammar_mark(s->grammar) - s->draft_mark < GRAMMAR_MAX_REWIND &&
           grammar_accept_token(s->grammar, token) == 0;
}

bool sampler_is_thinking(const struct sampler *s) { return s->think.inside; }

void sampler_draft_end(struct sampler *s) { grammar_rewind(s->grammar, s->draft_mark); }

bool sampler_is_done(struct sampler *s) {
    if (s->grammar_left) return true;
    if (s->p.n_trigger || !grammar_rules(s) || !grammar_is_complete(s->grammar)) return false;
    /* the grammar is complete and allows only the end: a model without an end token would not stop */
    s->is_mask_ready = false;
    if (grammar_mask(s->grammar, s->mask)) return false;
    s->is_mask_ready = true;
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (s->mask[i / 64] >> (i % 64) & 1 && !(s->tok && tok_is_eog(s->tok, i))) return false;
    return true;
}

int sampler_prime(struct sampler *s, const int32_t *tokens, size_t n, struct err *e) {
    (void)e;
    size_t from = n > MAX_HISTORY / 2 ? n - MAX_HISTORY / 2 : 0;
    for (size_t i = from; i < n; i++) remember(s, tokens[i]);
    return 0;
}

int sampler_add_hook(struct sampler *s, const struct sampler_hook *h) {
    if (s->n_hook == MAX_HOOKS) return CHIMERE_ELIMIT;
    s->hooks[s->n_hook++] = *h;
    return 0;
}

static int copy_params(struct sampler *s, const struct sampler_params *p) {
    s->p = *p;
    struct {
        const void *src;
        size_t bytes;
        const void **dst;
    } parts[] = {
        {p->bias, p->n_bias * sizeof *p->bias, (const void **)&s->p.bias},
        {p->think_start, p->n_think_start * sizeof *p->think_start,
         (const void **)&s->p.think_start},
        {p->think_end, p->n_think_end * sizeof *p->think_end, (const void **)&s->p.think_end}};
    for (int i = 0; i < 3; i++) {
        void *copy = arena_alloc(&s->arena, parts[i].bytes + 1);
        if (!copy) return CHIMERE_ENOMEM;
        if (parts[i].bytes) memcpy(copy, parts[i].src, parts[i].bytes);
        *parts[i].dst = copy;
    }
    static const char *const defaults[] = {"\n", ":", "\"", "*"};
    const char *const *breakers = p->dry_breakers ? p->dry_breakers : defaults;
    size_t n = p->dry_breakers ? p->n_dry_breaker : 4;
    const char **own = arena_alloc(&s->arena, (n + 1) * sizeof *own);
    if (!own) return CHIMERE_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (!(own[i] = arena_strndup(&s->arena, breakers[i], strlen(breakers[i]))))
            return CHIMERE_ENOMEM;
    s->p.dry_breakers = own;
    s->p.n_dry_breaker = n;
    struct sampler_trigger *triggers =
        arena_alloc(&s->arena, (p->n_trigger + 1) * sizeof *triggers);
    if (!triggers) return CHIMERE_ENOMEM;
    for (size_t i = 0; i < p->n_trigger; i++) {
        triggers[i] = p->triggers[i];
        triggers[i].text =
            arena_strndup(&s->arena, p->triggers[i].text, strlen(p->triggers[i].text));
        if (!triggers[i].text) return CHIMERE_ENOMEM;
    }
    s->p.triggers = triggers;
    return 0;
}

static int list_eog(struct sampler *s) {
    for (int pass = 0; s->tok && pass < 2; pass++) {
        s->n_eog = 0;
        for (int32_t i = 0; i < s->n_vocab; i++) {
            if (!tok_is_eog(s->tok, i)) continue;
            if (pass) s->eog[s->n_eog] = i;
            s->n_eog++;
        }
        if (!pass && !(s->eog = arena_alloc(&s->arena, ((size_t)s->n_eog + 1) * sizeof *s->eog)))
            return CHIMERE_ENOMEM;
    }
    return 0;
}

int sampler_new(struct sampler **out, const struct sampler_params *p, int32_t n_vocab,
                const struct tok *tok, struct err *e) {
    *out = NULL;
    int rc = sampler_check(p, n_vocab, e);
    if (rc) return rc;
    struct sampler *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    arena_init(&s->arena, (size_t)1 << 28);
    s->n_vocab = n_vocab;
    s->tok = tok;
    rng_seed(&s->rng, p->seed);
    s->mu = 2 * p->mirostat_tau;
    size_t n = (size_t)n_vocab;
    bool looks_back = p->repeat_penalty != 1 || p->frequency_penalty != 0 ||
                      p->presence_penalty != 0 || p->dry_multiplier > 0;
    rc = copy_params(s, p);
    if (!rc && (p->ignore_eos || p->min_tokens > 0)) rc = list_eog(s);
    s->work = mem_alloc(n * sizeof *s->work);
    s->cand = mem_alloc(n * sizeof *s->cand);
    s->few.ids = mem_alloc_array(SELECT_CAP + SELECT_MAX_IDS, sizeof *s->few.ids);
    s->few.known = mem_alloc_array((n + 63) / 64, sizeof *s->few.known);
    if (!s->work || !s->cand || !s->few.ids || !s->few.known) rc = CHIMERE_ENOMEM;
    if (!rc && looks_back) {
        s->history = mem_alloc(MAX_HISTORY * sizeof *s->history);
        s->breaks = mem_alloc(MAX_HISTORY);
        s->z = mem_alloc(MAX_HISTORY * sizeof *s->z);
        s->counts = mem_alloc_array(n, sizeof *s->counts);
        if (!s->history || !s->breaks || !s->z || !s->counts) rc = CHIMERE_ENOMEM;
    }
    if (!rc && p->grammar) {
        s->mask = mem_alloc_array((n + 63) / 64, sizeof *s->mask);
        rc = s->mask ? grammar_state_new(&s->grammar, p->grammar, e) : CHIMERE_ENOMEM;
    }
    s->think.inside = p->in_think;
    s->lazy.at_start = true;
    s->think.look = -1;
    if (rc) {
        sampler_free(s);
        return rc == CHIMERE_ENOMEM ? err_set(e, rc, "sampler: out of memory") : rc;
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    grammar_state_free(s->grammar);
    mem_free(s->mask);
    mem_free(s->work);
    mem_free(s->cand);
    mem_free(s->few.ids);
    mem_free(s->few.known);
    mem_free(s->history);
    mem_free(s->breaks);
    mem_free(s->z);
    mem_free(s->counts);
    arena_fini(&s->arena);
    mem_free(s);
}
