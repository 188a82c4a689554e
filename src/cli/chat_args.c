#include "cli/chat_args.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "model/vocab.h"

static int open_loras(struct chat_rig *r, const struct cfg *c, struct err *e) {
    const char *const *items;
    size_t n = cfg_list(c, "lora", &items);
    if (n > CHAT_MAX_LORAS)
        return err_set(e, CHIMERE_ELIMIT, "--lora: expected at most %d, got %zu", CHAT_MAX_LORAS,
                       n);
    for (size_t i = 0; i < n; i++) {
        char path[4096];
        double scale = 1;
        snprintf(path, sizeof path, "%s", items[i]);
        char *colon = strrchr(path, ':');
        if (colon && str_to_f64(colon + 1, -1000, 1000, &scale)) *colon = 0;
        struct lora *l;
        int rc = lora_open(&l, r->m, path, e);
        if (rc) return rc;
        r->loras[r->n_lora++] = (struct lora_use){l, (float)scale};
    }
    return 0;
}

static size_t mark_tokens(const struct tok *tok, const char *text, int32_t out[8]) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (tok_encode(tok, text, strlen(text), true, false, &ids, &n, NULL) || n > 8) n = 0;
    if (n) memcpy(out, ids, n * sizeof *out);
    mem_free(ids);
    return n;
}

static int open_template(struct chat_rig *r, struct err *e) {
    struct slice text = vocab_chat_template(r->m->gguf, NULL);
    if (!text.n) return 0;
    int rc = chat_template_new(&r->template, text.p, text.n, e);
    if (rc) {
        err_prefix(e, "chat template of %s", r->m->name);
        return rc;
    }
    if (!chat_template_caps(r->template)->has_reasoning) return 0;
    r->n_think_start = mark_tokens(r->tok, "<think>", r->think_start);
    r->n_think_end = mark_tokens(r->tok, "</think>", r->think_end);
    return 0;
}

int chat_rig_open(struct chat_rig *r, const struct cfg *c, int32_t n_seq, struct err *e) {
    *r = (struct chat_rig){.dev = NULL};
    int rc = model_args_open(c, &r->dev, &r->m, e);
    if (rc) return rc;
    struct engine_params p;
    engine_defaults(&p);
    int64_t ctx = cfg_int(c, "ctx");
    if (!ctx) ctx = r->m->hp.n_ctx_train < 32768 ? r->m->hp.n_ctx_train : 32768;
    p.n_seq = n_seq;
    p.n_ctx = ctx * n_seq;
    p.n_ctx_seq = ctx;
    p.n_batch = (int32_t)cfg_int(c, "batch");
    p.k_type = model_args_type(c, "cache-type-k");
    p.v_type = model_args_type(c, "cache-type-v");
    p.speculate = cfg_bool(c, "speculate");
    p.n_draft_max = (int32_t)cfg_int(c, "draft-max");
    p.deterministic = cfg_bool(c, "deterministic");
    rc = vocab_load(&r->tok, r->m->gguf, e);
    if (!rc) rc = open_template(r, e);
    if (!rc) rc = open_loras(r, c, e);
    if (!rc) rc = engine_new(&r->engine, r->m, r->tok, &p, e);
    if (rc) chat_rig_close(r);
    return rc;
}

void chat_rig_close(struct chat_rig *r) {
    engine_free(r->engine);
    for (int32_t i = 0; i < r->n_lora; i++) lora_close((struct lora *)r->loras[i].lora);
    chat_template_free(r->template);
    tok_free(r->tok);
    model_close(r->m);
    if (r->dev) r->dev->ops->close(r->dev);
    *r = (struct chat_rig){.dev = NULL};
}

void chat_rig_sampling(const struct chat_rig *r, const struct cfg *c, bool in_think,
                       struct sampler_params *p) {
    sampler_defaults(p);
    p->temperature = (float)cfg_float(c, "temp");
    p->seed = cfg_is_set(c, "seed") ? (uint64_t)cfg_int(c, "seed") : rng_entropy();
    p->top_k = (int32_t)cfg_int(c, "top-k");
    p->top_p = (float)cfg_float(c, "top-p");
    p->min_p = (float)cfg_float(c, "min-p");
    p->typical_p = (float)cfg_float(c, "typical-p");
    p->top_n_sigma = (float)cfg_float(c, "top-n-sigma");
    p->xtc_probability = (float)cfg_float(c, "xtc-probability");
    p->xtc_threshold = (float)cfg_float(c, "xtc-threshold");
    p->dynatemp_range = (float)cfg_float(c, "dynatemp-range");
    p->mirostat = (int32_t)cfg_int(c, "mirostat");
    p->mirostat_tau = (float)cfg_float(c, "mirostat-tau");
    p->mirostat_eta = (float)cfg_float(c, "mirostat-eta");
    p->repeat_penalty = (float)cfg_float(c, "repeat-penalty");
    p->presence_penalty = (float)cfg_float(c, "presence-penalty");
    p->frequency_penalty = (float)cfg_float(c, "frequency-penalty");
    p->penalty_last_n = (int32_t)cfg_int(c, "penalty-last-n");
    p->dry_multiplier = (float)cfg_float(c, "dry-multiplier");
    p->dry_base = (float)cfg_float(c, "dry-base");
    p->dry_allowed_length = (int32_t)cfg_int(c, "dry-allowed-length");
    p->ignore_eos = cfg_bool(c, "ignore-eos");
    p->think_budget = (int32_t)cfg_int(c, "think-budget");
    p->in_think = in_think;
    p->think_start = r->think_start;
    p->n_think_start = r->n_think_start;
    p->think_end = r->think_end;
    p->n_think_end = r->n_think_end;
}

/* The texts of the tokens that templates know by name. */
static void add_token(json_t *context, const struct tok *tok, const char *name, int32_t id) {
    struct slice s = id >= 0 ? tok_piece(tok, id) : (struct slice){"", 0};
    json_object_set_new(context, name, json_stringn(s.p ? s.p : "", s.n));
}

int chat_rig_encode(const struct chat_rig *r, json_t *messages, json_t *tools, bool think,
                    int32_t **ids, size_t *n, bool *in_think, struct err *e) {
    if (!r->template) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s has no chat template", r->m->name);
        err_hint(e, "use --raw for a plain completion");
        return CHIMERE_EUNSUPPORTED;
    }
    json_t *context = json_object();
    json_object_set(context, "messages", messages);
    if (tools) json_object_set(context, "tools", tools);
    json_object_set_new(context, "add_generation_prompt", json_true());
    json_object_set_new(context, "enable_thinking", json_boolean(think));
    add_token(context, r->tok, "bos_token", tok_bos(r->tok));
    add_token(context, r->tok, "eos_token", tok_eos(r->tok));
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    struct chat_prompt prompt;
    int rc = chat_render(r->template, context, false, &tm, &prompt, e);
    if (!rc) rc = chat_encode(r->tok, &prompt, ids, n, e);
    if (!rc) *in_think = prompt.in_think;
    chat_prompt_fini(&prompt);
    json_decref(context);
    return rc;
}
