#include "engine/load.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "format/quant.h"
#include "model/model.h"
#include "model/vocab.h"

void load_defaults(struct load_params *p) {
    *p = (struct load_params){.plan.n_seq_want = 1};
    engine_defaults(&p->plan.engine);
}

static int open_loras(struct loaded *l, const struct load_params *p, struct err *e) {
    if (p->n_lora > LOAD_MAX_LORAS)
        return err_set(e, CHIMERE_ELIMIT, "lora: expected at most %d, got %zu", LOAD_MAX_LORAS,
                       p->n_lora);
    for (size_t i = 0; i < p->n_lora; i++) {
        char path[4096];
        double scale = 1;
        if ((size_t)snprintf(path, sizeof path, "%s", p->loras[i]) >= sizeof path)
            return err_set(e, CHIMERE_ELIMIT, "lora: the path is too long");
        char *colon = strrchr(path, ':');
        if (colon && str_to_f64(colon + 1, -1000, 1000, &scale)) *colon = 0;
        struct lora *lora;
        int rc = lora_open(&lora, l->model, path, e);
        if (rc) return rc;
        l->loras[l->n_lora++] = (struct lora_use){lora, (float)scale};
    }
    return 0;
}

static int open_template(struct loaded *l, const struct load_params *p, struct err *e) {
    struct slice text = vocab_chat_template(l->model->gguf, NULL);
    if (p->template) text = (struct slice){p->template, strlen(p->template)};
    if (!text.n) return 0;
    int rc = chat_template_new(&l->template, text.p, text.n, e);
    if (rc && p->template) err_prefix(e, "--chat-template");
    else if (rc) err_prefix(e, "chat template of %s", l->model->name);
    return rc;
}

/* Without a budget nothing is refused; the allocator will say. */
static int make_plan(struct loaded *l, const struct load_params *p, struct err *e) {
    struct plan_params plan = p->plan;
    plan.dev = l->dev;
    plan.vram_bytes = p->vram_bytes;
    if (p->no_fit) plan.budget_bytes = UINT64_MAX;
    int rc = plan_make(&l->plan, p->path, &plan, e);
    if (rc || p->no_fit) return rc;
    /* checkpoints come on top of the plan, and take at most half of what it leaves */
    uint64_t left = plan_left_bytes(&l->plan);
    if (l->plan.engine.cache.ram_bytes > left / 2) l->plan.engine.cache.ram_bytes = left / 2;
    return 0;
}

void load_sampling(const struct model *m, struct sampler_params *p) {
    uint64_t n = model_n_params(m);
    for (int32_t il = 0; il < m->hp.n_layer; il++)
        if (m->hp.layer[il].ffn == FFN_MOE) return;
    if (n < 50000000 || n >= 500000000) return;
    static const char *const breakers[] = {
        "\n"}; /* such models also loop across quotes and colons */
    p->temperature = 0.3f;
    p->dry_multiplier = 0.8f;
    p->dry_breakers = breakers;
    p->n_dry_breaker = 1;
}

int load_open(struct loaded *l, const struct load_params *p, struct err *e) {
    *l = (struct loaded){.dev = NULL};
    const struct device_params device = {
        .name = p->device, .n_thread = p->n_thread, .isa = p->isa, .vram_bytes = p->vram_bytes};
    int rc = 0;
    if (p->opened) l->dev = p->opened;
    else rc = device_open(&l->dev, &device, e);
    if (!rc) rc = make_plan(l, p, e);
    struct expert_placement where = {.n_layer = l->plan.n_cpu_moe,
                                     .streams = l->plan.staging_bytes > 0,
                                     .pool_bytes = l->plan.pool_bytes};
    if (!rc && where.n_layer) rc = cpu_open(&where.host, p->n_thread, p->isa, e);
    if (!rc) rc = model_open_placed(&l->model, p->path, l->dev, &where, p->quiet, e);
    if (!rc) rc = vocab_load(&l->tok, l->model->gguf, e);
    if (!rc) rc = open_template(l, p, e);
    if (!rc) rc = open_loras(l, p, e);
    if (!rc) rc = engine_new(&l->engine, l->model, l->tok, &l->plan.engine, e);
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
    *l = (struct loaded){.dev = NULL};
}
