#include "engine/load.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/os/topology.h"
#include "engine/expert_profile.h"
#include "engine/lm/lm_llama.h"
#include "engine/team.h"
#include "format/quant.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"
#include "model/model.h"
#include "model/vocab.h"

void load_defaults(struct load_params *p) {
    *p = (struct load_params){.n_gpu_layers = -1, .plan.n_seq_want = 1};
    engine_defaults(&p->plan.engine);
}

/* Splits "FILE:SCALE" into the file and the scale. */
static int split_lora(const char *text, char *path, size_t size, double *scale, struct err *e) {
    *scale = 1;
    if ((size_t)snprintf(path, size, "%s", text) >= size)
        return err_set(e, CHIMERE_ELIMIT, "lora: the path is too long");
    char *colon = strrchr(path, ':');
    if (colon && str_to_f64(colon + 1, -1000, 1000, scale)) *colon = 0;
    return 0;
}

/* lm: the model that libllama runs; NULL: the model is l->model. */
static int open_loras(struct loaded *l, const struct load_params *p, struct lm *lm, struct err *e) {
    if (p->n_lora > LOAD_MAX_LORAS)
        return err_set(e, CHIMERE_ELIMIT, "lora: expected at most %d, got %zu", LOAD_MAX_LORAS,
                       p->n_lora);
    for (size_t i = 0; i < p->n_lora; i++) {
        char path[4096];
        double scale;
        struct lora *lora;
        int rc = split_lora(p->loras[i], path, sizeof path, &scale, e);
        if (!rc) rc = lm ? lm_llama_lora(lm, path, &lora, e) : lora_open(&lora, l->model, path, e);
        if (rc) return rc;
        l->loras[l->n_lora++] = (struct lora_use){lora, (float)scale};
    }
    return 0;
}

const struct gguf *load_gguf(const struct loaded *l) { return l->model ? l->model->gguf : l->gguf; }

static int open_template(struct loaded *l, const struct load_params *p, struct err *e) {
    struct slice text = vocab_chat_template(load_gguf(l), NULL);
    if (p->template) text = (struct slice){p->template, strlen(p->template)};
    if (!text.n) return 0;
    int rc = chat_template_new(&l->template, text.p, text.n, e);
    if (rc && p->template) err_prefix(e, "--chat-template");
    else if (rc) err_prefix(e, "chat template of %s", l->name);
    return rc;
}

/* With p->no_fit, the plan does not check the memory; an allocation fails later if it is short. */
static int make_plan(struct memory_plan *out, struct dev *dev, const struct load_params *p,
                     bool is_foreign, struct err *e) {
    struct plan_params plan = p->plan; /* includes the part of the layers */
    plan.dev = dev;
    plan.vram_bytes = p->vram_bytes;
    if (p->no_fit) plan.budget_bytes = UINT64_MAX;
    plan.is_foreign = is_foreign;
    plan.n_gpu_layers = p->n_gpu_layers;
    plan.mmproj = is_foreign ? p->mmproj : NULL;
    int rc = plan_make(out, p->path, &plan, e);
    if (rc || p->no_fit) return rc;
    /* checkpoints are not part of the plan; they may use at most half of the memory that the plan leaves */
    uint64_t left = plan_left_bytes(out);
    if (out->engine.cache.ram_bytes > left / 2) out->engine.cache.ram_bytes = left / 2;
    return 0;
}

/* Overrides *p with the sampling that the file recommends. */
static void key_sampling(const struct gguf *g, struct sampler_params *p) {
    const struct {
        const char *name;
        double min, max;
        float *real;
        int32_t *whole;
    } rows[] = {{"temp", 0, 100, &p->temperature, NULL},
                {"top_p", 0, 1, &p->top_p, NULL},
                {"min_p", 0, 1, &p->min_p, NULL},
                {"xtc_probability", 0, 1, &p->xtc_probability, NULL},
                {"xtc_threshold", 0, 1, &p->xtc_threshold, NULL},
                {"penalty_repeat", 0.01, 100, &p->repeat_penalty, NULL},
                {"mirostat_tau", 0, 100, &p->mirostat_tau, NULL},
                {"mirostat_eta", 0, 1, &p->mirostat_eta, NULL},
                {"top_k", 0, 1 << 30, NULL, &p->top_k},
                {"penalty_last_n", -1, 1 << 30, NULL, &p->penalty_last_n},
                {"mirostat", 0, 2, NULL, &p->mirostat}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char key[64];
        double v;
        snprintf(key, sizeof key, "general.sampling.%s", rows[i].name);
        const struct gguf_kv *kv = gguf_find(g, key);
        if (!kv || kv->type == GGUF_ARR || !gguf_item_f64(kv, 0, &v)) continue;
        if (!(v >= rows[i].min && v <= rows[i].max)) continue;
        if (rows[i].real) *rows[i].real = (float)v;
        else *rows[i].whole = (int32_t)v;
    }
}

static void small_sampling(const struct gguf *g, struct sampler_params *p) {
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (strstr(t->name, "_exps.weight")) return; /* a mixture of experts */
        n += t->n_elements;
    }
    if (n < 50000000 || n >= 500000000) return;
    static const char *const breakers[] = {
        "\n"}; /* small models also loop across quotes and colons */
    p->temperature = 0.3f;
    p->dry_multiplier = 0.8f;
    p->dry_breakers = breakers;
    p->n_dry_breaker = 1;
}

void load_sampling(const struct gguf *g, struct sampler_params *p) {
    small_sampling(g, p);
    key_sampling(g, p);
}

/* ---- models that libllama runs ---- */

/* Image rows depend on the encoder file. The file's first bytes and its length identify it. */
static int open_vision(struct loaded *l, const struct load_params *p, struct lm *lm,
                       struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, p->mmproj, e);
    if (rc) return rc;
    uint64_t salt = model_hash_file(g);
    gguf_close(g);
    return lm_llama_vision(lm, salt, &l->vision, e);
}

static int open_foreign(struct loaded *l, const struct load_params *p, struct err *e) {
    struct lm *lm = NULL;
    if (p->plan.engine.draft)
        return err_set(e, CHIMERE_EUNSUPPORTED, "--draft: libllama runs this model");
    int rc = make_plan(&l->plan, NULL, p, true, e);
    struct engine_params *g = &l->plan.engine;
    struct lm_llama_params params = {.path = p->path,
                                     .mmproj = p->mmproj,
                                     .library = p->llama_library,
                                     .gguf = l->gguf,
                                     .engine = *g,
                                     .page_bytes = l->plan.cache_bytes_per_tok * KV_PAGE,
                                     .n_thread = p->n_thread,
                                     .n_gpu_layers = p->n_gpu_layers,
                                     .is_process = p->llama_process};
    snprintf(l->name, sizeof l->name, "%s", l->plan.name);
    if (!rc) rc = vocab_load(&l->tok, l->gguf, e);
    if (!rc) rc = open_template(l, p, e);
    if (!rc) rc = lm_open_llama(&lm, &params, e);
    if (rc) return rc;
    *g = params.engine;
    rc = open_loras(l, p, lm, e);
    if (!rc && lm->n_vocab != (int32_t)tok_n_vocab(l->tok))
        rc = err_set(e, CHIMERE_EMISMATCH, "%s: expected logits of %u tokens, got %d", p->path,
                     tok_n_vocab(l->tok), lm->n_vocab);
    if (!rc && p->mmproj) rc = open_vision(l, p, lm, e);
    if (!rc) return engine_new_over(&l->engine, lm, l->tok, g, e);
    lm->ops->close(lm);
    return rc;
}

/* Decides whether libllama runs the file; if so, opens l->gguf. *why: if the file needs libllama and libllama cannot be
 * loaded, the reason. */
static int choose_backend(struct loaded *l, const struct load_params *p, bool *foreign,
                          struct err *why, struct err *e) {
    const struct llama_shim *shim;
    *foreign = p->backend == LOAD_LLAMA || (p->mmproj && p->backend == LOAD_AUTO);
    if (p->mmproj && p->backend == LOAD_OWN)
        return err_set(e, CHIMERE_EINVAL,
                       "--mmproj: expected --backend llama, because only libllama reads images");
    if (p->backend == LOAD_OWN) return 0;
    int rc = gguf_open(&l->gguf, p->path, e);
    if (rc || *foreign) return rc;
    if (!arch_is_known(l->gguf))
        *foreign = p->llama_process ? !llama_process_open(&shim, p->llama_library, why)
                                    : !llama_lib_open(&shim, p->llama_library, NULL, why);
    if (*foreign) return 0;
    gguf_close(l->gguf);
    l->gguf = NULL;
    return 0;
}

/* Prefixes libllama's error with the reason why libllama was tried. */
static void explain(const struct gguf *g, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    uint64_t cursor = 0;
    struct slice s;
    if (kv && gguf_next_str(kv, &cursor, &s))
        err_prefix(e, "general.architecture: '%.*s' is not a family we run, and by libllama",
                   (int)(s.n < 64 ? s.n : 64), s.p);
}

static int open_device(struct dev **out, const struct load_params *p, const char *name,
                       struct err *e) {
    const struct device_params device = {
        .name = name, .n_thread = p->n_thread, .isa = p->isa, .vram_bytes = p->vram_bytes};
    return device_open(out, &device, e);
}

static int open_model(struct model **out, const struct load_params *p, struct dev *dev,
                      const struct memory_plan *plan, struct err *e) {
    if (p->plan.n_rank > 1)
        return model_open_slice(out, p->path, dev, p->plan.rank, p->plan.n_rank, p->quiet, e);
    struct expert_placement where = plan_placement(plan);
    int rc = where.n_layer ? cpu_open(&where.host, p->n_thread, p->isa, e) : 0;
    return rc ? rc : model_open_part(out, p->path, dev, &where, p->plan.part, p->quiet, e);
}

/* Plans and opens the model. If the system refuses pinned memory for all experts, whole layers go to the processor. */
static int open_planned(struct model **m, struct memory_plan *plan, struct dev *dev,
                        const struct load_params *p, struct err *e) {
    int rc = make_plan(plan, dev, p, false, e);
    if (!rc) rc = open_model(m, p, dev, plan, e);
    struct err lost;
    if (rc != CHIMERE_ENOMEM || !plan->slot_bytes || dev->ops->status(dev, &lost)) return rc;
    log_warn("%s; whole layers stay on the processor", e->text);
    struct load_params other = *p;
    other.plan.expert_slots = false;
    rc = make_plan(plan, dev, &other, false, e);
    return rc ? rc : open_model(m, p, dev, plan, e);
}

static int open_own(struct loaded *l, const struct load_params *p, struct err *e) {
    int rc = l->dev ? 0 : open_device(&l->dev, p, p->device, e);
    if (!rc) rc = open_planned(&l->model, &l->plan, l->dev, p, e);
    if (!rc && p->expert_profile) rc = expert_profile_open(&l->profile, l->model, p->plan.part, e);
    if (!rc) snprintf(l->name, sizeof l->name, "%s", l->model->name);
    if (!rc) rc = vocab_load(&l->tok, l->model->gguf, e);
    if (!rc) rc = open_template(l, p, e);
    if (!rc) rc = open_loras(l, p, NULL, e);
    if (!rc && !l->is_split) rc = engine_new(&l->engine, l->model, l->tok, &l->plan.engine, e);
    return rc;
}

/* ---- the model on several cards ---- */

/* Derives the options of each card (*own) from those that apply to all cards together. */
static int share(const struct load_params *p, struct load_params *own, struct gpus *g,
                 struct err *e) {
    struct topology t;
    *own = *p;
    int rc = gpus_parse(p->gpus, g, e);
    if (rc) return rc;
    if (p->split == SPLIT_NONE && g->n > 1) g->n = 1;
    if (p->gpus) own->device = g->names[0];
    int32_t n = p->gpus ? g->n : 1 + p->n_more, n_cpu = 0;
    for (int32_t i = 0; i < g->n; i++) n_cpu += strcmp(g->names[i], "cpu") == 0;
    own->plan.engine.cache.ram_bytes /= (uint64_t)n;
    if (n_cpu > 1 && !p->n_thread) { /* several CPU engines share the threads */
        topology_read(NULL, NULL, -1, &t);
        own->n_thread = t.n_thread > n_cpu ? t.n_thread / n_cpu : 1;
    }
    return 0;
}

/* Deducts the host memory that this card's plan takes from the budget, if the user has set one. */
static void charge(struct load_params *p, const struct memory_plan *plan) {
    uint64_t taken = plan->is_device ? plan->host_bytes : plan->total_bytes;
    if (p->plan.budget_bytes)
        p->plan.budget_bytes = p->plan.budget_bytes > taken ? p->plan.budget_bytes - taken : 1;
}

static int open_copies(struct loaded *l, struct replica *r, const struct load_params *p,
                       struct err *e) {
    for (int32_t i = 0; i < l->n_lora; i++) {
        char path[4096];
        double scale;
        int rc = split_lora(p->loras[i], path, sizeof path, &scale, e);
        if (!rc) rc = lora_open(&r->loras[i], r->model, path, e);
        if (rc) return rc;
        lora_join((struct lora *)l->loras[i].lora, r->loras[i]);
    }
    return 0;
}

static int open_replica(struct loaded *l, struct replica *r, struct load_params *p, struct err *e) {
    int rc = r->dev ? 0 : open_device(&r->dev, p, r->name, e);
    if (!rc) rc = make_plan(&r->plan, r->dev, p, false, e);
    if (!rc) charge(p, &r->plan);
    if (!rc) rc = open_model(&r->model, p, r->dev, &r->plan, e);
    if (!rc) rc = open_copies(l, r, p, e);
    if (!rc) rc = engine_new(&r->engine, r->model, l->tok, &r->plan.engine, e);
    if (rc) err_prefix(e, "%s", r->name);
    return rc;
}

/* Allocates the replicas of the other cards; takes their devices from p->more if these are open. */
static int list_replicas(struct loaded *l, const struct load_params *p, const struct gpus *g,
                         struct err *e) {
    int32_t n = p->gpus ? g->n - 1 : p->n_more;
    if (n < 1) return 0;
    l->replicas = mem_alloc_array((size_t)n, sizeof *l->replicas);
    for (int32_t i = 0; !l->replicas && i < p->n_more; i++) p->more[i]->ops->close(p->more[i]);
    if (!l->replicas) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    l->n_replica = n;
    snprintf(l->card, sizeof l->card, "%s", p->gpus ? g->names[0] : "0");
    for (int32_t i = 0; i < n; i++) {
        if (i < p->n_more) l->replicas[i].dev = p->more[i];
        snprintf(l->replicas[i].name, sizeof l->replicas[i].name, "%s",
                 p->gpus ? g->names[i + 1] : (const char[]){(char)('1' + i), 0});
    }
    return 0;
}

static int open_replicas(struct loaded *l, struct load_params *p, struct err *e) {
    struct engine *engines[GPUS_MAX] = {l->engine};
    const char *names[GPUS_MAX] = {l->card};
    int rc = 0;
    charge(p, &l->plan);
    for (int32_t i = 0; !rc && i < l->n_replica; i++) {
        rc = open_replica(l, &l->replicas[i], p, e);
        engines[i + 1] = l->replicas[i].engine;
        names[i + 1] = l->replicas[i].name;
    }
    return rc || !l->n_replica ? rc : team_new(engines, names, 1 + l->n_replica, e);
}

/* ---- the layers of a model on several cards ---- */

static uint64_t room_of(struct dev *d, const struct load_params *p) {
    uint64_t n = d->ops->free_bytes ? d->ops->free_bytes(d) : 0;
    return d->ops->is_host ? 1 : p->vram_bytes && p->vram_bytes < n ? p->vram_bytes : n;
}

static int open_devices(struct loaded *l, const struct load_params *p, struct err *e) {
    int rc = l->dev ? 0 : open_device(&l->dev, p, p->device, e);
    for (int32_t i = 0; !rc && i < l->n_replica; i++) {
        struct replica *r = &l->replicas[i];
        if (!r->dev) rc = open_device(&r->dev, p, r->name, e);
        if (rc) err_prefix(e, "%s", r->name);
    }
    return rc;
}

static int cut_layers(struct loaded *l, const struct load_params *p, struct err *e) {
    uint64_t share[GPUS_MAX] = {room_of(l->dev, p)};
    struct layer_part part[GPUS_MAX];
    for (int32_t i = 0; i < l->n_replica; i++) share[i + 1] = room_of(l->replicas[i].dev, p);
    int rc = gpus_cut(p->path, share, 1 + l->n_replica, part, e);
    if (rc) return rc;
    l->part = part[0];
    for (int32_t i = 0; i < l->n_replica; i++) l->replicas[i].part = part[i + 1];
    return 0;
}

/* Reduces *p to the smaller of both: the card with the least room limits slots and context of all parts. */
static void take_least(struct engine_params *p, const struct engine_params *o) {
    if (o->n_seq < p->n_seq) p->n_seq = o->n_seq;
    if (o->n_ctx < p->n_ctx) p->n_ctx = o->n_ctx;
    if (o->n_ctx_seq < p->n_ctx_seq) p->n_ctx_seq = o->n_ctx_seq;
    if (o->n_batch < p->n_batch) p->n_batch = o->n_batch;
    if (o->cache.ram_bytes < p->cache.ram_bytes) p->cache.ram_bytes = o->cache.ram_bytes;
}

/* Every card gets a slice of each layer; all experts stay on the cards. */
static void cut_slices(struct loaded *l, struct load_params *p) {
    p->plan.n_rank = 1 + l->n_replica;
    p->plan.in_memory = p->plan.fix_cpu_moe = true;
    p->plan.n_cpu_moe = 0;
}

/* Determines the share of each card. Opens the devices of all cards. */
static int cut_model(struct loaded *l, struct load_params *p, bool by_layer, struct err *e) {
    const char *how = by_layer ? "layer" : "tensor";
    if (p->plan.engine.draft)
        return err_set(e, CHIMERE_EUNSUPPORTED, "--split %s: --draft is not supported", how);
    int rc = open_devices(l, p, e);
    if (!rc && by_layer) rc = cut_layers(l, p, e);
    if (by_layer) p->plan.n_engine = 1 + l->n_replica; /* as many as keep all cards busy */
    if (!by_layer) cut_slices(l, p);
    l->is_split = true;
    /* undo the division by share(): one engine, not one per card */
    p->plan.engine.cache.ram_bytes *= (uint64_t)(1 + l->n_replica);
    p->plan.part = l->part;
    return rc;
}

/* Makes the plan of card i; i > 0. */
static int plan_part(struct replica *r, struct load_params *p, int32_t i, struct err *e) {
    p->plan.part = r->part;
    if (p->plan.n_rank > 1) p->plan.rank = i;
    int rc = make_plan(&r->plan, r->dev, p, false, e);
    if (!rc) charge(p, &r->plan);
    return rc;
}

/* One engine, or several that share the sequences and take turns on the cards, led by the first. */
static int open_engines(struct loaded *l, struct model *const *parts, int32_t n, struct err *e) {
    struct engine *engines[GPUS_MAX];
    static const char *const names[GPUS_MAX] = {"turn 0", "turn 1", "turn 2", "turn 3",
                                                "turn 4", "turn 5", "turn 6", "turn 7"};
    const struct engine_params *all = &l->plan.engine;
    int32_t n_part = 1 + l->n_replica;
    if (n < 2) return engine_new_parts(&l->engine, parts, n_part, NULL, l->tok, all, e);
    int rc = lm_turns_new(&l->turns, n_part, e);
    for (int32_t i = 0; !rc && i < n; i++) {
        struct engine_params own = *all;
        own.n_seq = (all->n_seq + n - 1 - i) / n;
        own.n_ctx = all->n_ctx / n / KV_PAGE * KV_PAGE;
        if (own.n_ctx < own.n_ctx_seq) own.n_ctx = own.n_ctx_seq;
        own.cache.ram_bytes /= (uint64_t)n;
        struct engine **to = i ? &l->engines[i - 1] : &l->engine;
        rc = engine_new_parts(to, parts, n_part, l->turns, l->tok, &own, e);
        engines[i] = *to;
        l->n_engine = i + 1;
    }
    return rc ? rc : team_new(engines, names, n, e);
}

static int open_parts(struct loaded *l, struct load_params *p, bool by_layer, struct err *e) {
    struct model *parts[GPUS_MAX];
    int rc = cut_model(l, p, by_layer, e);
    if (!rc) rc = open_own(l, p, e);
    if (rc) return rc;
    struct engine_params least = l->plan.engine;
    int32_t n_engine = l->plan.n_engine;
    parts[0] = l->model;
    charge(p, &l->plan);
    for (int32_t i = 0; !rc && i < l->n_replica; i++) {
        struct replica *r = &l->replicas[i];
        rc = plan_part(r, p, i + 1, e);
        if (!rc) rc = open_model(&r->model, p, r->dev, &r->plan, e);
        if (!rc) rc = open_copies(l, r, p, e);
        if (rc) err_prefix(e, "%s", r->name);
        if (!rc) take_least(&least, &r->plan.engine);
        if (r->plan.n_engine < n_engine) n_engine = r->plan.n_engine;
        parts[i + 1] = r->model;
    }
    if (rc) return rc;
    l->plan.engine = least;
    if (n_engine > least.n_seq) n_engine = least.n_seq;
    if (least.n_ctx / n_engine < least.n_ctx_seq) n_engine = 1;
    return open_engines(l, parts, n_engine, e);
}

/* Returns true if card i can hold the whole model, including its experts, after what *own has been charged for. */
static bool fits(struct loaded *l, struct load_params *own, int32_t i, struct memory_plan *plan) {
    struct err e;
    if (make_plan(plan, i ? l->replicas[i - 1].dev : l->dev, own, false, &e)) return false;
    return (!plan->n_cpu_moe && !plan->slot_bytes) || own->plan.fix_cpu_moe;
}

/* The first card alone. */
static void drop_replicas(struct loaded *l) {
    for (int32_t i = 0; i < l->n_replica; i++)
        if (l->replicas[i].dev) l->replicas[i].dev->ops->close(l->replicas[i].dev);
    l->n_replica = 0;
    mem_free(l->replicas);
    l->replicas = NULL;
    l->card[0] = 0;
}

/* Chooses how the cards share the model; opens their devices if the choice depends on their memory. A split by layers
 * is slower than one card for a single answer, so it is chosen only if the first card cannot hold the model. */
static int choose_split(struct loaded *l, const struct load_params *p, enum split *how,
                        struct err *e) {
    struct load_params own = *p;
    struct memory_plan plan;
    *how = l->n_replica ? p->split : SPLIT_NONE;
    if (*how != SPLIT_AUTO) return 0;
    int rc = open_devices(l, p, e);
    if (rc) return rc;
    bool first = fits(l, &own, 0, &plan), all = first;
    for (int32_t i = 1; all && i <= l->n_replica; i++) {
        charge(&own, &plan);
        all = fits(l, &own, i, &plan);
    }
    *how = all ? SPLIT_REPLICA : first ? SPLIT_NONE : SPLIT_LAYER;
    l->why = all ? "auto: replicas, because each card can hold the whole model"
             : first
                 ? "auto: the first card alone, because it can hold the whole model and another "
                   "card cannot; layers on several cards would be slower for one answer"
                 : "auto: layers, because the first card cannot hold the whole model";
    if (*how == SPLIT_NONE) drop_replicas(l);
    return 0;
}

static int open_cards(struct loaded *l, const struct load_params *p, struct err *e) {
    struct load_params own;
    struct gpus g = {.n = 0};
    enum split how = SPLIT_NONE;
    l->dev = p->opened;
    int rc = share(p, &own, &g, e);
    if (!rc) rc = list_replicas(l, &own, &g, e);
    if (!rc) rc = choose_split(l, &own, &how, e);
    if (!rc && how >= SPLIT_LAYER) return open_parts(l, &own, how == SPLIT_LAYER, e);
    if (!rc) rc = open_own(l, &own, e);
    return rc ? rc : open_replicas(l, &own, e);
}

int32_t load_n_seq(const struct loaded *l) {
    int32_t n = l->plan.engine.n_seq;
    for (int32_t i = 0; i < l->n_replica; i++)
        if (l->replicas[i].engine) n += l->replicas[i].plan.engine.n_seq;
    return n;
}

static int refuse_gpus(struct err *e) {
    err_set(e, CHIMERE_EUNSUPPORTED, "--gpus: libllama runs this model");
    err_hint(e, "it uses the GPUs that it finds; --gpu-layers says for how many layers");
    return CHIMERE_EUNSUPPORTED;
}

/* ---- opening ---- */

/* Checks that each adapter file has the format of a LoRA adapter. */
static int check_loras(const struct load_params *p, struct err *e) {
    for (size_t i = 0; i < p->n_lora; i++) {
        char path[4096];
        double scale;
        struct gguf *file;
        int rc = split_lora(p->loras[i], path, sizeof path, &scale, e);
        if (!rc) rc = gguf_open(&file, path, e);
        if (rc) return rc;
        gguf_close(file);
    }
    return 0;
}

/* Checks the plans of all cards in turn, for the way in which they share the model. */
static int check_cards(struct loaded *l, struct load_params *p, struct err *e) {
    enum split how = SPLIT_NONE;
    int rc = choose_split(l, p, &how, e);
    if (!rc)
        rc = how >= SPLIT_LAYER ? cut_model(l, p, how == SPLIT_LAYER, e) : open_devices(l, p, e);
    if (!rc) rc = make_plan(&l->plan, l->dev, p, false, e);
    if (!rc) charge(p, &l->plan);
    for (int32_t i = 0; !rc && i < l->n_replica; i++) {
        struct replica *r = &l->replicas[i];
        rc = plan_part(r, p, i + 1, e);
        if (rc) err_prefix(e, "%s", r->name);
        else if (l->is_split) take_least(&l->plan.engine, &r->plan.engine);
    }
    return rc;
}

int load_check(const struct load_params *p, struct memory_plan *plan, struct err *e) {
    struct loaded l = {.dev = NULL};
    struct err why = {0};
    struct load_params own;
    struct gpus g = {.n = 0};
    bool foreign;
    int rc = choose_backend(&l, p, &foreign, &why, e);
    if (!rc) rc = share(p, &own, &g, e);
    if (!rc && foreign && p->gpus) rc = refuse_gpus(e);
    if (!rc && foreign) rc = make_plan(&l.plan, NULL, &own, true, e);
    if (!rc && !foreign) rc = list_replicas(&l, &own, &g, e);
    if (!rc && !foreign) rc = check_cards(&l, &own, e);
    if (!rc && !l.gguf) rc = gguf_open(&l.gguf, p->path, e);
    snprintf(l.name, sizeof l.name, "%s", l.plan.name);
    if (!rc) rc = vocab_load(&l.tok, l.gguf, e);
    if (!rc) rc = open_template(&l, p, e);
    if (!rc) rc = check_loras(p, e);
    if (!rc && plan) *plan = l.plan;
    load_close(&l);
    return rc;
}

int load_open(struct loaded *l, const struct load_params *p, struct err *e) {
    bool foreign;
    struct err why = {0};
    *l = (struct loaded){.dev = NULL};
    int rc = choose_backend(l, p, &foreign, &why, e);
    if (rc || foreign) {
        if (p->opened) p->opened->ops->close(p->opened);
        for (int32_t i = 0; i < p->n_more; i++) p->more[i]->ops->close(p->more[i]);
        if (!rc && p->gpus) rc = refuse_gpus(e);
        else if (!rc) rc = open_foreign(l, p, e);
        bool refused = rc == CHIMERE_EUNSUPPORTED || rc == CHIMERE_EFORMAT;
        if (refused && foreign && p->backend == LOAD_AUTO) explain(l->gguf, e);
    } else {
        rc = open_cards(l, p, e);
        if (rc && why.code == CHIMERE_ENOENT && !p->llama_library)
            err_hint(e, "libllama may run it: build with cmake -DCHIMERE_LLAMA_DIR=DIR "
                        "(docs/libllama.md)");
        else if (rc && why.code) err_hint(e, "libllama may run it, but: %s", why.text);
    }
    if (rc) load_close(l);
    return rc;
}

/* Frees each engine before the objects that it uses; l->engine, the leader, is freed last. */
static void close_replicas(struct loaded *l) {
    for (int32_t i = 0; i < l->n_replica; i++) engine_free(l->replicas[i].engine);
    for (int32_t i = 0; i + 1 < l->n_engine; i++) engine_free(l->engines[i]);
    engine_free(l->engine);
    lm_turns_free(l->turns);
    for (int32_t i = 0; i < l->n_replica; i++) {
        struct replica *r = &l->replicas[i];
        for (int32_t k = 0; k < LOAD_MAX_LORAS; k++) lora_close(r->loras[k]);
        model_close(r->model);
        if (r->dev) r->dev->ops->close(r->dev);
    }
    mem_free(l->replicas);
}

void load_close(struct loaded *l) {
    vision_free(l->vision);
    close_replicas(l);
    expert_profile_close(l->profile);
    for (int32_t i = 0; i < l->n_lora; i++) lora_close((struct lora *)l->loras[i].lora);
    chat_template_free(l->template);
    tok_free(l->tok);
    model_close(l->model);
    if (l->dev) l->dev->ops->close(l->dev);
    if (l->gguf) gguf_close(l->gguf);
    *l = (struct loaded){.dev = NULL};
}
