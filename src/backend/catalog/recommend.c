#include "backend/catalog/recommend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/os/os.h"
#include "engine/plan.h"
#include "format/quant.h"
#include "model/arch/arch.h"

#define SHAPE(used, routed, experts, of, layers, cache, state)                                     \
    { used, routed, experts, of, layers, cache, state }
#define CURATED(...) {__VA_ARGS__},
static const struct curated models[] = {
#include "backend/catalog/curated.def"
};
#undef CURATED
#undef SHAPE

enum { N_MODEL = sizeof models / sizeof *models };
/* OTHER_BYTES: code, tokenizer and activations, in addition to weights, cache and state. RESERVE_BYTES: left to other
 * programs, as in the plan. */
enum { OTHER_BYTES = 320 << 20, RESERVE_BYTES = 256 << 20 };
enum { USABLE_M = 4500 };

static bool is_shown(const struct curated *m) { return arch_find(m->arch) != NULL; }

const struct curated *recommend_find(const char *name) {
    for (size_t i = 0; i < N_MODEL; i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

bool recommend_hub(const char *name, char *out, size_t out_size) {
    const struct curated *m = recommend_find(name);
    return m && m->hub && (size_t)snprintf(out, out_size, "hf:%s:%s", m->hub, m->type) < out_size;
}

struct fit recommend_fit(const struct curated *m, uint64_t host_bytes, uint64_t device_bytes) {
    const struct curated_shape *s = &m->shape;
    struct fit f = {.fits = false};
    uint64_t weights = m->n_mb * 1000000, rest = s->state_kb * 1000 + OTHER_BYTES;
    uint64_t budget = device_bytes ? device_bytes : host_bytes;
    budget = budget > RESERVE_BYTES ? budget - RESERVE_BYTES : 0;
    int64_t least = m->n_ctx_train < PLAN_MIN_CTX ? m->n_ctx_train : PLAN_MIN_CTX;
    uint64_t cache = s->cache_bytes_per_tok * (uint64_t)least;
    f.need_bytes = weights + rest + cache;
    if (device_bytes && f.need_bytes > budget && s->n_routed_m) {
        /* everything except the experts must fit the device; experts that do not fit there must fit the host */
        double experts_m = (double)s->n_routed_m * s->n_expert / s->n_used;
        double routed = experts_m / (experts_m + (double)(s->n_used_m - s->n_routed_m));
        uint64_t experts = (uint64_t)((double)weights * routed), over = f.need_bytes - budget;
        if (over > experts || over + RESERVE_BYTES > host_bytes) return f;
        weights -= over;
        f.experts_on_host = true;
    }
    if (weights + rest + cache > budget) return f;
    f.fits = true;
    f.n_ctx = m->n_ctx_train;
    if (s->cache_bytes_per_tok) {
        uint64_t n = (budget - weights - rest) / s->cache_bytes_per_tok;
        if (n < (uint64_t)f.n_ctx) f.n_ctx = (int64_t)n;
    }
    return f;
}

const struct curated *recommend_best(uint64_t host_bytes) {
    for (size_t i = 0; i < N_MODEL; i++) {
        const struct curated *m = &models[i];
        if (!is_shown(m) || strcmp(m->kind, "chat") != 0 || m->shape.n_used_m > USABLE_M) continue;
        if (recommend_fit(m, host_bytes, 0).fits) return m;
    }
    return NULL;
}

/* Returns the type of most weights in a file that is named after `type`. */
static uint32_t main_type(const char *type) {
    static const struct {
        const char *part;
        uint32_t id;
    } names[] = {{"Q4_K", QUANT_Q4_K}, {"Q3_K", QUANT_Q3_K}, {"Q2_K", QUANT_Q2_K},
                 {"Q8_0", QUANT_Q8_0}, {"Q4_1", QUANT_Q4_1}, {"Q4_0", QUANT_Q4_0}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(type, names[i].part)) return names[i].id;
    return QUANT_Q4_K;
}

static void cost_of(struct speed_cost *c, const struct curated *m) {
    const struct curated_shape *s = &m->shape;
    uint32_t type = main_type(m->type);
    *c = (struct speed_cost){.n_expert = s->n_expert, .n_used = s->n_used};
    c->n_mul[type] = (uint64_t)s->n_used_m * 1000000;
    c->n_routed[type] = (uint64_t)s->n_routed_m * 1000000;
    c->state_bytes = s->state_kb * 1000;
    c->n_op = s->n_layer * 9;
    c->n_step_op = s->n_layer * (s->n_expert ? 4 : 6);
    c->n_moe = s->n_expert ? s->n_layer : 0;
    c->weight_bytes = c->n_mul[type] / 2;
}

static json_t *round_json(double v) {
    return isfinite(v) && v > 0 ? json_real(round(v * 10) / 10) : json_null();
}

static int model_json(json_t *list, const struct curated *m, struct speed_probe *probe,
                      uint64_t host, uint64_t device, struct err *e) {
    struct fit f = recommend_fit(m, host, device);
    struct speed speed = {.decode_tok_s = NAN, .prefill_tok_s = NAN};
    struct speed_cost c;
    char hub[256], command[512];
    cost_of(&c, m);
    int rc = f.fits && !f.experts_on_host ? speed_predict(&speed, probe, &c, e) : 0;
    if (rc) return rc;
    bool on_hub = recommend_hub(m->name, hub, sizeof hub);
    bool chats = strcmp(m->kind, "chat") == 0;
    if (!on_hub) snprintf(command, sizeof command, "script/model && chimere serve -m %s", m->name);
    else if (chats)
        snprintf(command, sizeof command, "chimere pull %s && chimere serve -m %s", m->name,
                 m->name);
    else
        snprintf(command, sizeof command, "chimere serve --%s-model $(chimere pull %s)",
                 strcmp(m->kind, "embedder") == 0 ? "embedding" : "rerank", m->name);
    json_t *o = json_pack(
        "{s:s, s:s?, s:s, s:I, s:s, s:s, s:s, s:b, s:I, s:b, s:I, s:o, s:o, s:s}", "name", m->name,
        "hub", m->hub, "type", m->type, "bytes", (json_int_t)m->n_mb * 1000000, "licence",
        m->licence, "kind", m->kind, "good_at", m->good, "fits", f.fits, "n_ctx",
        (json_int_t)f.n_ctx, "experts_on_host", f.experts_on_host, "need_bytes",
        (json_int_t)f.need_bytes, "decode_tok_s", round_json(chats ? speed.decode_tok_s : NAN),
        "prefill_tok_s", round_json(speed.prefill_tok_s), "command", command);
    return o && !json_array_append_new(list, o) ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int check_json(json_t *list, struct dev *dev, struct speed_probe *probe, const char *path,
                      struct err *e) {
    struct speed_cost c;
    struct speed want, got;
    int rc = speed_cost_read(&c, path, e);
    if (!rc) rc = speed_predict(&want, probe, &c, e);
    if (!rc) rc = speed_measure(&got, dev, path, e);
    if (rc) return rc;
    const char *base = strrchr(path, '/');
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:f, s:f}", "file", base ? base + 1 : path, "decode_predicted",
        round_json(want.decode_tok_s), "decode_measured", round_json(got.decode_tok_s),
        "prefill_predicted", round_json(want.prefill_tok_s), "prefill_measured",
        round_json(got.prefill_tok_s), "decode_error", want.decode_tok_s / got.decode_tok_s - 1,
        "prefill_error", want.prefill_tok_s / got.prefill_tok_s - 1);
    return o && !json_array_append_new(list, o) ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

int recommend_json(json_t **out, struct dev *dev, const char *const *files, size_t n_file,
                   struct err *e) {
    struct speed_probe *probe;
    uint64_t host = plan_available_bytes();
    uint64_t device = dev->ops->is_host ? 0 : dev->ops->free_bytes(dev);
    *out = NULL;
    int rc = speed_probe_new(&probe, dev, e);
    if (rc) return rc;
    const struct curated *best = recommend_best(host);
    json_t *list = json_array(), *checks = json_array();
    for (size_t i = 0; !rc && i < n_file; i++) rc = check_json(checks, dev, probe, files[i], e);
    for (size_t i = 0; !rc && i < N_MODEL; i++)
        if (is_shown(&models[i])) rc = model_json(list, &models[i], probe, host, device, e);
    double bandwidth = speed_bandwidth(probe);
    speed_probe_free(probe);
    if (!rc)
        *out = json_pack("{s:{s:s, s:I, s:I, s:I, s:o}, s:s?, s:O, s:O}", "machine", "device",
                         dev->ops->name, "cores", (json_int_t)os_cores(), "memory_bytes",
                         (json_int_t)host, "device_bytes", (json_int_t)device, "bandwidth_gb_s",
                         round_json(bandwidth * 1e-9), "best", best ? best->name : NULL, "checks",
                         checks, "models", list);
    json_decref(list);
    json_decref(checks);
    return rc || *out ? rc : err_set(e, CHIMERE_ENOMEM, "out of memory");
}
