/* cmd_inspect.c: shows the content of a model file without reading its weights. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/inspect.h"
#include "cli/args/model_args.h"
#include "engine/plan.h"
#include "kernels/device.h"
#include "model/arch/arch.h"
#include "model/vocab.h"

const struct cfg_opt inspect_options[] = {
    {"tensors", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "list every tensor"},
    {"memory", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "show the memory that running it needs"},
    {"check", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "only report keys and tensors of a GGUF file that no model of its family reads"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "one JSON object instead of text"},
    {"ctx", 'c', CFG_INT, "N", "0", 0, 1 << 30, NULL,
     "context in tokens for --memory; 0: the model's own, at most 32768"},
    {"parallel", 0, CFG_INT, "N", "1", 1, 4096, NULL, "sequences for --memory"},
    {"batch", 0, CFG_INT, "N", "0", 0, 65536, NULL,
     "tokens per forward pass for --memory; 0: 512, or 2048 on a GPU with room for it"},
    {"device", 0, CFG_STR, "NAME", "auto", 0, 0, NULL,
     "device for --memory: cpu, cuda or cuda:N; auto: as in run"},
    {"vram", 0, CFG_BYTES, "SIZE", NULL, 1e6, 1e15, NULL,
     "maximum memory to use on the GPU, for --memory"},
    {"ram", 0, CFG_BYTES, "SIZE", NULL, 1e6, 1e15, NULL,
     "maximum host memory to use, for --memory: experts that do not fit stay on disk"},
    CACHE_OPTIONS,
    {0}};

static const char usage[] =
    "usage: chimere inspect FILE [--tensors] [--memory] [--json] [--check]\n"
    "\n"
    "FILE: a GGUF file (the first of a split set), a .safetensors file, its\n"
    "index, or a Hugging Face folder.";

/* ---- gathering ---- */

static int add_tensor(struct inspection *x, const char *name, const char *type, uint32_t n_dims,
                      uint64_t n_elements, uint64_t n_bytes) {
    struct inspect_type *t = NULL;
    for (size_t i = 0; i < x->n_types && !t; i++)
        if (strcmp(x->types[i].name, type) == 0) t = &x->types[i];
    if (!t) {
        if (x->n_types == INSPECT_MAX_TYPES) return CHIMERE_ELIMIT;
        t = &x->types[x->n_types++];
        t->name = type;
    }
    t->n_tensors++;
    t->n_weights += n_elements;
    t->n_bytes += n_bytes;
    x->n_weights += n_elements;
    x->n_bytes += n_bytes;
    enum inspect_part part = strstr(name, "_exps") || strstr(name, ".experts.")     ? PART_EXPERTS
                             : strstr(name, "embd") || strstr(name, "embed_tokens") ? PART_EMBEDDING
                             : strncmp(name, "output.", 7) == 0 || strncmp(name, "lm_head.", 8) == 0
                                 ? PART_OUTPUT
                             : n_dims < 2 ? PART_VECTORS
                                          : PART_DENSE;
    x->part_bytes[part] += n_bytes;
    return 0;
}

static int by_bytes(const void *a, const void *b) {
    const struct inspect_type *x = a, *y = b;
    return x->n_bytes < y->n_bytes ? 1 : x->n_bytes > y->n_bytes ? -1 : 0;
}

static int gather_gguf(struct inspection *x, struct err *e) {
    for (size_t i = 0; i < gguf_n_tensors(x->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->gguf, i);
        const char *type = quant_traits(t->type)->name;
        if (add_tensor(x, t->name, type, t->n_dims, t->n_elements, t->n_bytes))
            return err_set(e, CHIMERE_ELIMIT, "%s: too many types", x->path);
    }
    for (uint32_t i = 0; i < gguf_n_files(x->gguf); i++)
        x->file_bytes += gguf_file_bytes(x->gguf, i);
    x->n_files = gguf_n_files(x->gguf);
    return 0;
}

static int gather_safetensors(struct inspection *x, struct err *e) {
    for (size_t i = 0; i < safetensors_n_tensors(x->st); i++) {
        const struct st_tensor *t = safetensors_at(x->st, i);
        const char *type = safetensors_dtype_name(t->dtype);
        if (add_tensor(x, t->name, type, t->n_dims, t->n_elements, t->n_bytes))
            return err_set(e, CHIMERE_ELIMIT, "%s: too many types", x->path);
    }
    x->n_files = safetensors_n_files(x->st);
    for (uint32_t i = 0; i < x->n_files; i++) x->file_bytes += safetensors_file_bytes(x->st, i);
    return 0;
}

/* Opens the file as GGUF unless its name has another extension. */
static int open_file(struct inspection *x, struct err *e) {
    int rc;
    if (str_ends(x->path, ".safetensors") || str_ends(x->path, ".json") || fs_is_folder(x->path)) {
        rc = safetensors_open(&x->st, x->path, e);
        if (!rc) rc = gather_safetensors(x, e);
    } else {
        rc = gguf_open(&x->gguf, x->path, e);
        if (!rc) rc = gather_gguf(x, e);
    }
    qsort(x->types, x->n_types, sizeof x->types[0], by_bytes);
    return rc;
}

static void note_plan(struct inspection *x, const struct memory_plan *p, bool has_tiers) {
    x->has_plan = true;
    x->plan =
        (struct inspect_plan){.is_known = true,
                              .n_ctx = p->engine.n_ctx,
                              .n_seq = p->engine.n_seq,
                              .n_batch = p->engine.n_batch,
                              .weight_bytes = p->weight_bytes,
                              .cache_bytes = p->cache_bytes,
                              .cache_bytes_per_tok = p->cache_bytes_per_tok,
                              .state_bytes = p->state_bytes,
                              .state_bytes_per_seq = p->state_bytes / (uint64_t)p->engine.n_seq,
                              .scratch_bytes = p->scratch_bytes,
                              .program_bytes = p->program_bytes,
                              .total_bytes = p->total_bytes,
                              .has_tiers = has_tiers,
                              .device_bytes = p->tier_bytes[PLAN_DEVICE],
                              .memory_bytes = p->tier_bytes[PLAN_MEMORY],
                              .disk_bytes = p->tier_bytes[PLAN_DISK]};
}

static struct plan_params params_of(const struct cfg *c) {
    struct plan_params want = {
        .n_ctx = cfg_int(c, "ctx"), .n_seq = (int32_t)cfg_int(c, "parallel"), .expert_slots = true};
    engine_defaults(&want.engine);
    want.engine.n_batch = (int32_t)cfg_int(c, "batch");
    want.engine.k_type = model_args_type(c, "cache-type-k");
    want.engine.v_type = model_args_type(c, "cache-type-v");
    return want;
}

/* Computes the memory plan of a run with enough memory. If the architecture is unknown, only the size of the weights is
 * known. */
static void plan_memory(struct inspection *x, const struct cfg *c) {
    struct plan_params want = params_of(c);
    struct memory_plan p;
    want.budget_bytes = UINT64_MAX;
    x->has_plan = true;
    if (x->gguf && !plan_make(&p, x->path, &want, NULL)) note_plan(x, &p, false);
}

/* The plan of a run on a GPU, or within a given amount of memory, as the engine would make it. */
static int plan_run(struct inspection *x, const struct cfg *c, struct memory_plan *out,
                    struct err *e) {
    const struct device_params device = {.name = cfg_str(c, "device"),
                                         .vram_bytes =
                                             cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0};
    struct plan_params want = params_of(c);
    if (strcmp(device.name, "cpu") == 0 && device.vram_bytes)
        return err_set(e, CHIMERE_EINVAL, "inspect: --vram needs a GPU: --device cuda or cuda:N");
    want.vram_bytes = device.vram_bytes;
    want.budget_bytes = cfg_is_set(c, "ram") ? cfg_bytes(c, "ram") : 0;
    int rc = device_open(&want.dev, &device, e); /* the processor has forms of its own too */
    if (rc) return rc;
    rc = plan_make(out, x->path, &want, e);
    if (!rc && cfg_bool(c, "json")) note_plan(x, out, true);
    want.dev->ops->close(want.dev);
    return rc;
}

static void print_run_plan(const struct memory_plan *p) {
    struct buf b;
    buf_init(&b, 1 << 16);
    plan_print(p, &b);
    if (b.n) printf("\n%s", b.p);
    buf_fini(&b);
}

/* Whether a key can change what a model of the file's family computes, and is not read. Keys of other prefixes describe
 * the file; some of the family repeat what tensors or other keys say. */
static bool is_unread(const struct hparams *hp, const struct gguf_kv *kv, bool is_marked) {
    static const char *const repeats[] = {"vocab_size",
                                          "attention.head_count",
                                          "attention.kv_lora_rank",
                                          "rope.scaling.finetuned",
                                          "rope.dimension_sections",
                                          "expert_shared_count",
                                          "attention.causal",
                                          "attention.layer_norm_epsilon",
                                          "classifier.output_labels"};
    size_t n = strlen(hp->arch->name);
    if (kv->key.n > 10 && memcmp(kv->key.p, "tokenizer.", 10) == 0)
        return !vocab_reads_key(kv->key);
    if (is_marked || kv->key.n < n + 6 || memcmp(kv->key.p, hp->arch->name, n) != 0 ||
        kv->key.p[n] != '.')
        return false;
    const char *suffix = kv->key.p + n + 1;
    if (!hp->n_rot && memcmp(suffix, "rope.", 5) == 0) return false;
    for (size_t i = 0; i < sizeof repeats / sizeof *repeats; i++)
        if (strlen(repeats[i]) == kv->key.n - n - 1 &&
            memcmp(suffix, repeats[i], kv->key.n - n - 1) == 0)
            return false;
    return true;
}

/* Prints the keys and tensors that the model does not use; *n_unread: their number. */
static int check_file(const struct inspection *x, size_t *n_unread, struct err *e) {
    if (!x->gguf) return err_set(e, CHIMERE_EINVAL, "--check: expected a GGUF file");
    struct hparams *hp = mem_zalloc(sizeof *hp);
    bool *marks = mem_zalloc(gguf_n_kv(x->gguf) + 1);
    size_t n_key = 0, n_tensor = 0;
    int rc = hp && marks ? hparams_read_marking(hp, x->gguf, marks, e)
                         : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < gguf_n_kv(x->gguf); i++) {
        const struct gguf_kv *kv = gguf_kv_at(x->gguf, i);
        if (!is_unread(hp, kv, marks[i])) continue;
        printf("not read: key %.*s\n", (int)kv->key.n, kv->key.p);
        n_key++;
    }
    for (size_t i = 0; !rc && i < gguf_n_tensors(x->gguf); i++) {
        const char *name = gguf_tensor_at(x->gguf, i)->name;
        if (arch_reads_tensor(hp, name)) continue;
        printf("not read: tensor %s\n", name);
        n_tensor++;
    }
    if (!rc)
        printf("%s: %zu of %zu keys and %zu of %zu tensors have no place in a %s model\n", x->path,
               n_key, gguf_n_kv(x->gguf), n_tensor, gguf_n_tensors(x->gguf), hp->arch->name);
    *n_unread = n_key + n_tensor;
    mem_free(marks);
    mem_free(hp);
    return rc;
}

int cmd_inspect(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, inspect_options, usage, argc, argv, &status)) return status;
    struct err e = {0};
    struct inspection x = {.path = cfg_pos(c, 0), .list_tensors = cfg_bool(c, "tensors")};
    int rc = cfg_n_pos(c) == 1
                 ? open_file(&x, &e)
                 : err_set(&e, CHIMERE_EINVAL, "inspect: expected one FILE, got %d arguments",
                           cfg_n_pos(c));
    struct memory_plan plan;
    if (cfg_bool(c, "memory") && strcmp(cfg_str(c, "device"), "auto") == 0)
        cfg_set(c, "device", device_has_gpu() ? "cuda" : "cpu", NULL);
    bool as_run = cfg_bool(c, "memory") && (strcmp(cfg_str(c, "device"), "cpu") != 0 ||
                                            cfg_is_set(c, "ram") || cfg_is_set(c, "vram"));
    if (!rc && as_run) rc = plan_run(&x, c, &plan, &e);
    else if (!rc && cfg_bool(c, "memory")) plan_memory(&x, c);
    size_t n_unread = 0;
    if (!rc && cfg_bool(c, "check")) rc = check_file(&x, &n_unread, &e);
    else if (!rc && cfg_bool(c, "json")) inspect_print_json(&x);
    else if (!rc) inspect_print_text(&x);
    if (!rc && as_run && !cfg_bool(c, "json")) print_run_plan(&plan);
    gguf_close(x.gguf);
    safetensors_close(x.st);
    cfg_free(c);
    return rc ? cli_fail(&e) : n_unread > 0;
}
