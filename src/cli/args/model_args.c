#include "cli/args/model_args.h"

#include <stdio.h>
#include <string.h>

#include "backend/catalog/recommend.h"
#include "base/file.h"
#include "base/os/os.h"
#include "base/str.h"
#include "cli/args/hub_args.h"
#include "engine/plan.h"
#include "eval/windows.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "kernels/device.h"

/* Models with short names, and their files: the first file that exists is used. */
static const struct own {
    const char *name, *files[3], *how;
} own_models[] = {
    {"nano",
     {"chimere-nano.gguf", "models/chimere-nano.gguf", "models/chimere-nano-bf16.gguf"},
     "give a model with -m FILE.gguf"},
    {"mini",
     {"chimere-mini.gguf", "models/chimere-mini.gguf"},
     "it is in the packages, and in models/ of the source repository"},
    {"smol", {"smollm2-135m-instruct-q4_1.gguf"}, "script/model fetches it (98 MB)"},
};

static const struct own *own_find(const char *name) {
    for (size_t i = 0; i < sizeof own_models / sizeof *own_models; i++)
        if (strcmp(own_models[i].name, name) == 0) return &own_models[i];
    return NULL;
}

static int own_path(const struct own *o, char *out, size_t out_size, struct err *e) {
    for (size_t i = 0; i < 3 && o->files[i]; i++)
        if (file_find_data(o->files[i], out, out_size) == 0) return 0;
    err_set(e, CHIMERE_ENOENT, "model %s is not on this machine", o->name);
    err_hint(e, "%s", o->how);
    return CHIMERE_ENOENT;
}

int model_args_own(const char *name, char *out, size_t out_size, struct err *e) {
    const struct own *o = own_find(name);
    return o ? own_path(o, out, out_size, e)
             : err_set(e, CHIMERE_ENOENT, "model %s is not known", name);
}

int model_args_path(const struct cfg *c, char *out, size_t out_size, struct err *e) {
    return model_args_named(c, cfg_str(c, "model"), out, out_size, e);
}

int model_args_named(const struct cfg *c, const char *path, char *out, size_t out_size,
                     struct err *e) {
    if (path && str_starts(path, "hf:")) return hub_args_path(c, path, false, 0, out, out_size, e);
    const struct own *o = own_find(path ? path : "nano");
    if (o && (!path || !file_exists(path))) return own_path(o, out, out_size, e);
    char hub[512];
    if (recommend_hub(path, hub, sizeof hub) && !file_exists(path))
        return hub_args_path(c, hub, false, 0, out, out_size, e);
    if (!strpbrk(path, "/.") && !file_exists(path)) {
        err_set(e, CHIMERE_ENOENT, "there is no file and no model named '%.200s'", path);
        err_hint(e, "chimere recommend lists names; FILE.gguf and hf:OWNER/REPO also work");
        return CHIMERE_ENOENT;
    }
    if ((size_t)snprintf(out, out_size, "%s", path) >= out_size)
        return err_set(e, CHIMERE_ELIMIT, "--model: path is too long");
    return 0;
}

int model_args_talk(struct cfg *c, struct err *e) {
    /* the first that is here: answers of each to eval/newcomer are recorded in models/README.md */
    static const char *const talk[][2] = {
        {"smol", "SmolLM2-135M"}, {"mini", "chimere-mini"}, {"nano", "chimere-nano"}};
    char path[4096];
    size_t i = 0;
    if (cfg_str(c, "model")) return 0;
    while (i < 2 && model_args_own(talk[i][0], path, sizeof path, NULL)) i++;
    if (!cfg_bool(c, "quiet") && os_is_terminal(stderr)) {
        const struct curated *best = recommend_best(plan_available_bytes());
        fprintf(stderr, "%s answers, a small model for demonstration. %s: chimere pull %s\n",
                talk[i][1], "Best for this machine",
                best && best->hub ? best->name : "NAME; see chimere recommend");
    }
    return cfg_set(c, "model", i < 2 ? path : "nano", e);
}

enum cpu_isa model_args_isa(const struct cfg *c) { return cpu_isa_of(cfg_str(c, "isa")); }

struct moe_keep model_args_keep(const struct cfg *c) {
    return (struct moe_keep){(float)cfg_float(c, "expert-mass"), (int32_t)cfg_int(c, "expert-min"),
                             (float)cfg_float(c, "expert-entropy")};
}

uint32_t model_args_type(const struct cfg *c, const char *option) {
    return (uint32_t)quant_type_from_name(cfg_str(c, option));
}

static int open_device(const struct cfg *c, const char *name, struct dev **dev, struct err *e) {
    const struct device_params p = {.name = name,
                                    .n_thread = (int)cfg_int(c, "threads"),
                                    .isa = model_args_isa(c),
                                    .vram_bytes = cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0};
    return device_open(dev, &p, e);
}

static int open_model(const struct cfg *c, const char *path, struct dev *dev,
                      struct expert_placement where, struct model **m, struct err *e) {
    int rc = 0;
    if (where.n_layer && !dev->ops->is_host)
        rc = cpu_open(&where.host, (int)cfg_int(c, "threads"), model_args_isa(c), e);
    return rc ? rc : model_open_placed(m, path, dev, &where, cfg_bool(c, "quiet"), e);
}

/* Refuses a model whose weights exceed --ram. */
static int check_ram(const struct cfg *c, const char *path, struct err *e) {
    struct gguf *g;
    if (!cfg_is_set(c, "ram")) return 0;
    int rc = gguf_open(&g, path, e);
    if (rc) return rc;
    uint64_t n = gguf_tensor_bytes(g), most = cfg_bytes(c, "ram");
    gguf_close(g);
    if (n <= most) return 0;
    char needs[16], allows[16];
    str_bytes(needs, n);
    str_bytes(allows, most);
    return err_set(e, CHIMERE_ELIMIT,
                   "%s: needs all its weights in memory here, %s, and --ram allows %s", path, needs,
                   allows);
}

int model_args_open(const struct cfg *c, struct dev **dev, struct model **m, struct err *e) {
    char path[4096];
    const struct expert_placement where = {
        .n_layer = cfg_is_set(c, "n-cpu-moe") ? (int32_t)cfg_int(c, "n-cpu-moe") : 0,
        .streams = true};
    int rc = model_args_path(c, path, sizeof path, e);
    if (!rc) rc = check_ram(c, path, e);
    const char *name = cfg_str(c, "device");
    if (!rc) rc = open_device(c, strcmp(name, "auto") ? name : "cpu", dev, e);
    if (rc) return rc;
    rc = open_model(c, path, *dev, where, m, e);
    if (rc) (*dev)->ops->close(*dev);
    return rc;
}

struct plan_params model_args_want(const struct cfg *c, int64_t n_ctx, int32_t n_seq,
                                   int32_t n_batch) {
    struct plan_params want = {.n_ctx = (n_ctx + KV_PAGE - 1) / KV_PAGE * KV_PAGE,
                               .n_seq = n_seq,
                               .full_ctx = true,
                               .own_bytes = WINDOWS_LOGIT_BYTES};
    engine_defaults(&want.engine);
    want.engine.n_batch = n_batch;
    want.engine.speculate = false;
    want.engine.cache.ram_bytes = 0;
    if (cfg_has(c, "cache-type-k")) {
        want.engine.k_type = model_args_type(c, "cache-type-k");
        want.engine.v_type = model_args_type(c, "cache-type-v");
    }
    return want;
}

int model_args_open_planned(const struct cfg *c, const struct plan_params *want,
                            struct memory_plan *plan, struct dev **dev, struct model **m,
                            struct err *e) {
    char path[4096];
    int rc = model_args_path(c, path, sizeof path, e);
    if (!rc) rc = open_device(c, cfg_str(c, "device"), dev, e);
    if (rc) return rc;
    struct plan_params p = *want;
    struct memory_plan own;
    if (!plan) plan = &own;
    p.dev = *dev;
    p.vram_bytes = cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0;
    p.budget_bytes = cfg_is_set(c, "ram") ? cfg_bytes(c, "ram") : 0;
    p.fix_cpu_moe = cfg_is_set(c, "n-cpu-moe");
    p.n_cpu_moe = p.fix_cpu_moe ? (int32_t)cfg_int(c, "n-cpu-moe") : 0;
    p.expert_slots = cfg_bool(c, "expert-slots");
    rc = plan_make(plan, path, &p, e);
    if (!rc) rc = open_model(c, path, *dev, plan_placement(plan), m, e);
    if (rc) (*dev)->ops->close(*dev);
    return rc;
}
