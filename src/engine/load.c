#include "engine/load.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "engine/lm_llama.h"
#include "format/quant.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"
#include "model/model.h"
#include "model/vocab.h"

void load_defaults(struct load_params *p) {
    *p = (struct load_params){.n_gpu_layers = -1, .plan.n_seq_want = 1};
    engine_defaults(&p->plan.engine);
}

/* The file and the scale of "FILE:SCALE". */
static int split_lora(const char *text, char *path, size_t size, double *scale, struct err *e) {
    *scale = 1;
    if ((size_t)snprintf(path, size, "%s", text) >= size)
        return err_set(e, CHIMERE_ELIMIT, "lora: the path is too long");
    char *colon = strrchr(path, ':');
    if (colon && str_to_f64(colon + 1, -1000, 1000, scale)) *colon = 0;
    return 0;
}

/* lm: the model as libllama has it; NULL: l->model. */
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

/* Without a budget nothing is refused; the allocator will say. */
static int make_plan(struct loaded *l, const struct load_params *p, bool is_foreign,
                     struct err *e) {
    struct plan_params plan = p->plan;
    plan.dev = l->dev;
    plan.vram_bytes = p->vram_bytes;
    if (p->no_fit) plan.budget_bytes = UINT64_MAX;
    plan.is_foreign = is_foreign;
    plan.n_gpu_layers = p->n_gpu_layers;
    int rc = plan_make(&l->plan, p->path, &plan, e);
    if (rc || p->no_fit) return rc;
    /* checkpoints come on top of the plan, and take at most half of what it leaves */
    uint64_t left = plan_left_bytes(&l->plan);
    if (l->plan.engine.cache.ram_bytes > left / 2) l->plan.engine.cache.ram_bytes = left / 2;
    return 0;
}

void load_sampling(const struct gguf *g, struct sampler_params *p) {
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (strstr(t->name, "_exps.weight")) return; /* a mixture */
        n += t->n_elements;
    }
    if (n < 50000000 || n >= 500000000) return;
    static const char *const breakers[] = {
        "\n"}; /* such models also loop across quotes and colons */
    p->temperature = 0.3f;
    p->dry_multiplier = 0.8f;
    p->dry_breakers = breakers;
    p->n_dry_breaker = 1;
}

/* ---- by libllama ---- */

static int open_foreign(struct loaded *l, const struct load_params *p, struct err *e) {
    struct lm *lm = NULL;
    int rc = make_plan(l, p, true, e);
    struct engine_params *g = &l->plan.engine;
    struct lm_llama_params params = {.path = p->path,
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
    if (!rc) return engine_new_over(&l->engine, lm, l->tok, g, e);
    lm->ops->close(lm);
    return rc;
}

/* Whether libllama is to run the file; opens l->gguf for it. *why: a file that cannot run without libllama, and
 * why there is none. */
static int choose_backend(struct loaded *l, const struct load_params *p, bool *foreign,
                          struct err *why, struct err *e) {
    const struct llama_shim *shim;
    *foreign = p->backend == LOAD_LLAMA;
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

/* Before the reason that libllama gives: why it was asked. */
static void explain(const struct gguf *g, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    uint64_t cursor = 0;
    struct slice s;
    if (kv && gguf_next_str(kv, &cursor, &s))
        err_prefix(e, "general.architecture: '%.*s' is not a family we run, and by libllama",
                   (int)(s.n < 64 ? s.n : 64), s.p);
}

static int open_own(struct loaded *l, const struct load_params *p, struct err *e) {
    const struct device_params device = {
        .name = p->device, .n_thread = p->n_thread, .isa = p->isa, .vram_bytes = p->vram_bytes};
    int rc = 0;
    if (p->opened) l->dev = p->opened;
    else rc = device_open(&l->dev, &device, e);
    if (!rc) rc = make_plan(l, p, false, e);
    struct expert_placement where = {.n_layer = l->plan.n_cpu_moe,
                                     .streams = l->plan.staging_bytes > 0,
                                     .pool_bytes = l->plan.pool_bytes};
    if (!rc && where.n_layer) rc = cpu_open(&where.host, p->n_thread, p->isa, e);
    if (!rc) rc = model_open_placed(&l->model, p->path, l->dev, &where, p->quiet, e);
    if (!rc) snprintf(l->name, sizeof l->name, "%s", l->model->name);
    if (!rc) rc = vocab_load(&l->tok, l->model->gguf, e);
    if (!rc) rc = open_template(l, p, e);
    if (!rc) rc = open_loras(l, p, NULL, e);
    if (!rc) rc = engine_new(&l->engine, l->model, l->tok, &l->plan.engine, e);
    return rc;
}

/* The files of adapters: whether each is one of this format. */
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

int load_check(const struct load_params *p, struct memory_plan *plan, struct err *e) {
    struct loaded l = {.dev = NULL};
    struct err why = {0};
    bool foreign;
    const struct device_params device = {
        .name = p->device, .n_thread = p->n_thread, .isa = p->isa, .vram_bytes = p->vram_bytes};
    int rc = choose_backend(&l, p, &foreign, &why, e);
    if (!rc && !foreign) rc = device_open(&l.dev, &device, e);
    if (!rc) rc = make_plan(&l, p, foreign, e);
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
        if (!rc) rc = open_foreign(l, p, e);
        bool refused = rc == CHIMERE_EUNSUPPORTED || rc == CHIMERE_EFORMAT;
        if (refused && foreign && p->backend == LOAD_AUTO) explain(l->gguf, e);
    } else {
        rc = open_own(l, p, e);
        if (rc && why.code == CHIMERE_ENOENT && !p->llama_library)
            err_hint(e, "libllama may run it: build with cmake -DCHIMERE_LLAMA_DIR=DIR "
                        "(docs/libllama.md)");
        else if (rc && why.code) err_hint(e, "libllama may run it, but: %s", why.text);
    }
    if (rc) load_close(l);
    return rc;
}

void load_close(struct loaded *l) {
    engine_free(l->engine);
    for (int32_t i = 0; i < l->n_lora; i++) lora_close((struct lora *)l->loras[i].lora);
    chat_template_free(l->template);
    tok_free(l->tok);
    model_close(l->model);
    if (l->dev) l->dev->ops->close(l->dev);
    if (l->gguf) gguf_close(l->gguf);
    *l = (struct loaded){.dev = NULL};
}
