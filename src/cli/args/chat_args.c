#include "cli/args/chat_args.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "model/vocab.h"
#include "store/store.h"
#include "text/chat_builtin.h"

enum { MAX_TEMPLATE_BYTES = 4 << 20 };

static size_t checkpoint_tokens(const struct tok *tok, const char *text, int32_t out[8]) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (tok_encode(tok, text, strlen(text), true, false, &ids, &n, NULL) || n > 8) n = 0;
    if (n) memcpy(out, ids, n * sizeof *out);
    mem_free(ids);
    return n;
}

static void take_llama(const struct cfg *c, struct load_params *p) {
    const char *backend = cfg_str(c, "backend");
    p->backend = strcmp(backend, "own") == 0     ? LOAD_OWN
                 : strcmp(backend, "llama") == 0 ? LOAD_LLAMA
                                                 : LOAD_AUTO;
    p->n_gpu_layers = (int32_t)cfg_int(c, "gpu-layers");
    p->llama_library = cfg_str(c, "llama-library");
    p->mmproj = cfg_str(c, "mmproj");
    p->llama_process = cfg_bool(c, "backend-process");
}

/* If the value is a number, it is llama.cpp's --draft-max. */
static void take_draft(const struct cfg *c, struct engine_params *p) {
    int64_t n;
    p->draft = cfg_str(c, "draft");
    p->n_draft_max = (int32_t)cfg_int(c, "draft-max");
    p->n_draft_head = (int32_t)cfg_int(c, "draft-head");
    if (!p->draft || !str_to_i64(p->draft, 0, INT32_MAX, &n)) return;
    p->draft = NULL;
    p->n_draft_max = n < STEP_MAX_TOK ? (int32_t)n : STEP_MAX_TOK - 1;
}

/* Returns a hash of this program: a state continues bit for bit only in an equal one. */
static uint64_t hash_program(void) {
    char path[4096];
    struct file_map map;
    if (file_program(path, sizeof path, NULL) || file_map(&map, path, NULL)) return 0;
    uint64_t h = hash_bytes(map.data, map.size, 0);
    file_unmap(&map);
    return h;
}

static void take_shared(const struct cfg *c, struct cache_params *p) {
    p->shared_dir = cfg_str(c, "shared-states");
    p->shared_bytes = cfg_bytes(c, "shared-disk");
    p->shared_owner_bytes = cfg_bytes(c, "shared-quota");
    if (p->shared_dir) p->shared_build = hash_program();
}

void chat_rig_how(const struct cfg *c, int32_t n_seq, struct load_params *p) {
    load_defaults(p);
    p->n_thread = (int32_t)cfg_int(c, "threads");
    p->device = cfg_str(c, "device");
    p->isa = model_args_isa(c);
    p->quiet = cfg_bool(c, "quiet");
    p->vram_bytes = cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0;
    p->plan.budget_bytes = cfg_is_set(c, "ram") ? cfg_bytes(c, "ram") : 0;
    p->plan.expert_slots = cfg_bool(c, "expert-slots");
    p->expert_profile = true;
    p->plan.fix_cpu_moe = cfg_is_set(c, "n-cpu-moe");
    p->plan.n_cpu_moe = p->plan.fix_cpu_moe ? (int32_t)cfg_int(c, "n-cpu-moe") : 0;
    p->plan.n_ctx = cfg_int(c, "ctx");
    p->plan.n_seq = n_seq > 0 ? n_seq : 0;
    p->plan.n_seq_want = n_seq < 0 ? -n_seq : n_seq;
    p->plan.engine.n_batch = (int32_t)cfg_int(c, "batch");
    p->plan.engine.k_type = model_args_type(c, "cache-type-k");
    p->plan.engine.v_type = model_args_type(c, "cache-type-v");
    p->plan.engine.speculate = cfg_bool(c, "speculate");
    take_draft(c, &p->plan.engine);
    p->plan.engine.keep = model_args_keep(c);
    p->plan.engine.deterministic = cfg_bool(c, "deterministic");
    p->plan.engine.cache.ram_bytes = cfg_bytes(c, "prompt-cache");
    p->plan.engine.cache.disk_bytes = cfg_bytes(c, "state-disk");
    p->plan.engine.cache.owner_disk_bytes = cfg_bytes(c, "state-quota");
    if (cfg_has(c, "shared-states")) take_shared(c, &p->plan.engine.cache);
    p->no_fit = !cfg_bool(c, "fit");
    p->n_lora = cfg_list(c, "lora", &p->loras);
    if (cfg_has(c, "gpu-layers")) take_llama(c, p);
    if (!cfg_has(c, "gpus")) return;
    p->gpus = cfg_str(c, "gpus");
    p->split = split_of(cfg_str(c, "split"));
    p->plan.engine.link = link_way_of(cfg_str(c, "link"));
}

int chat_rig_load(const struct cfg *c, int32_t n_seq, struct load_params *p, char *path,
                  size_t path_size, struct err *e) {
    chat_rig_how(c, n_seq, p);
    p->path = path;
    return model_args_path(c, path, path_size, e);
}

/* Opens the folder of saved states, DIR/states, and their index, DIR/chimere.db. */
static int open_states(struct chat_rig *r, const struct cfg *c, struct cache_params *p, char *dir,
                       size_t dir_size, struct err *e) {
    char path[4096];
    const char *root = cfg_str(c, "state-dir"), *shared = cfg_str(c, "store");
    int rc = shared ? store_open(&r->store, shared, e) : 0;
    if (rc || !root) return rc;
    if ((size_t)snprintf(dir, dir_size, "%s/states", root) >= dir_size ||
        (size_t)snprintf(path, sizeof path, "%s/chimere.db", root) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "state-dir: the path is too long");
    rc = file_mkdirs(root, e);
    struct store **local = shared ? &r->index : &r->store; /* the files belong to this machine */
    if (!rc) rc = store_open(local, path, e);
    if (!p->ram_bytes || !p->disk_bytes) return rc; /* saved states are turned off */
    p->dir = dir;
    p->store = *local;
    return rc;
}

int chat_rig_template(const struct cfg *c, char **text, struct err *e) {
    const char *name = cfg_str(c, "chat-template"), *known = name ? chat_builtin(name) : NULL;
    size_t n;
    *text = NULL;
    if (!name) return 0;
    if (known) return (*text = mem_strdup(known)) ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = file_read(name, MAX_TEMPLATE_BYTES, text, &n, e);
    if (rc) err_hint(e, "expected a file, or one of %s", chat_builtin_names());
    return rc;
}

static int read_kwargs(struct chat_rig *r, const struct cfg *c, struct err *e) {
    const char *text = cfg_str(c, "chat-template-kwargs");
    if (!text) return 0;
    r->template_kwargs = chat_json_object(text, strlen(text), "--chat-template-kwargs", e);
    return r->template_kwargs ? 0 : e->code;
}

int chat_rig_open(struct chat_rig *r, const struct cfg *c, int32_t n_seq, struct err *e) {
    char path[4096], dir[4096], *template = NULL;
    struct load_params p;
    *r = (struct chat_rig){.dev = NULL};
    int rc = chat_rig_load(c, n_seq, &p, path, sizeof path, e);
    if (!rc) rc = open_states(r, c, &p.plan.engine.cache, dir, sizeof dir, e);
    if (!rc) rc = read_kwargs(r, c, e);
    if (!rc) rc = chat_rig_template(c, &template, e);
    p.template = template;
    if (!rc) rc = load_open(&r->loaded, &p, e);
    mem_free(template);
    if (rc) {
        store_close(r->store);
        store_close(r->index);
        json_decref(r->template_kwargs);
        return rc;
    }
    const struct loaded *l = &r->loaded;
    r->dev = l->dev;
    r->m = l->model;
    r->tok = l->tok;
    r->template = l->template;
    r->engine = l->engine;
    r->loras = l->loras;
    r->n_lora = l->n_lora;
    if (r->template && chat_template_caps(r->template)->has_reasoning) {
        r->n_think_start = checkpoint_tokens(r->tok, "<think>", r->think_start);
        r->n_think_end = checkpoint_tokens(r->tok, "</think>", r->think_end);
    }
    return 0;
}

int chat_rig_memory(struct chat_rig *r, const struct cfg *c, const json_t *messages,
                    struct ngram_memory **out, struct err *e) {
    struct ngram_memory_params p = {.alpha = (float)cfg_float(c, "engram-alpha"),
                                    .is_trusted = true,
                                    .recall = cfg_bool(c, "engram-recall"),
                                    .messages = messages,
                                    .tok = r->tok};
    *out = NULL;
    p.n_table = cfg_list(c, "engram", &p.tables);
    if (!p.n_table) return 0;
    int rc = r->engram ? 0
                       : engram_store_new(&r->engram, cfg_str(c, "engram-dir"), tok_hash(r->tok),
                                          tok_n_vocab(r->tok), e);
    p.store = r->engram;
    return rc ? rc : ngram_memory_open(out, &p, e);
}

void chat_rig_close(struct chat_rig *r) {
    engram_store_free(r->engram);
    load_close(&r->loaded);
    store_close(r->store);
    store_close(r->index);
    json_decref(r->template_kwargs);
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
    struct sampler_params usual = *p;
    load_sampling(load_gguf(&r->loaded), &usual);
    const struct {
        const char *option;
        float *to, from;
    } reals[] = {{"temp", &p->temperature, usual.temperature},
                 {"top-p", &p->top_p, usual.top_p},
                 {"min-p", &p->min_p, usual.min_p},
                 {"xtc-probability", &p->xtc_probability, usual.xtc_probability},
                 {"xtc-threshold", &p->xtc_threshold, usual.xtc_threshold},
                 {"repeat-penalty", &p->repeat_penalty, usual.repeat_penalty},
                 {"mirostat-tau", &p->mirostat_tau, usual.mirostat_tau},
                 {"mirostat-eta", &p->mirostat_eta, usual.mirostat_eta}};
    const struct {
        const char *option;
        int32_t *to, from;
    } wholes[] = {{"top-k", &p->top_k, usual.top_k},
                  {"penalty-last-n", &p->penalty_last_n, usual.penalty_last_n},
                  {"mirostat", &p->mirostat, usual.mirostat}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (cfg_origin(c, reals[i].option) == CFG_DEFAULT) *reals[i].to = reals[i].from;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (cfg_origin(c, wholes[i].option) == CFG_DEFAULT) *wholes[i].to = wholes[i].from;
    if (cfg_origin(c, "dry-multiplier") == CFG_DEFAULT && p->temperature > 0) {
        p->dry_multiplier = usual.dry_multiplier;
        p->dry_breakers = usual.dry_breakers;
        p->n_dry_breaker = usual.n_dry_breaker;
    }
    p->ignore_eos = cfg_bool(c, "ignore-eos");
    p->think_budget = (int32_t)cfg_int(c, "think-budget");
    p->in_think = in_think;
    p->think_start = r->think_start;
    p->n_think_start = r->n_think_start;
    p->think_end = r->think_end;
    p->n_think_end = r->n_think_end;
}

/* Adds the text of a token under the name by which templates know it. */
static void add_token(json_t *context, const struct tok *tok, const char *name, int32_t id) {
    struct slice s = id >= 0 ? tok_piece(tok, id) : (struct slice){"", 0};
    json_object_set_new(context, name, json_stringn(s.p ? s.p : "", s.n));
}

int chat_rig_encode(const struct chat_rig *r, json_t *messages, json_t *tools, bool think,
                    int32_t **ids, size_t *n, bool *in_think, struct err *e) {
    if (!r->template) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s has no chat template", r->loaded.name);
        err_hint(e, "use --raw for a plain completion");
        return CHIMERE_EUNSUPPORTED;
    }
    json_t *context = json_object();
    if (r->template_kwargs) json_object_update(context, r->template_kwargs);
    think |= json_is_true(json_object_get(r->template_kwargs, "enable_thinking"));
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
