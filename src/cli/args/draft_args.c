#include "cli/args/draft_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/args/hub_args.h"
#include "convert/hf.h"
#include "format/safetensors.h"

enum { CONFIG_MAX = 8 << 20, ENDS = 64 };

static uint64_t hash_tensors(const struct safetensors *st, uint64_t h) {
    for (size_t i = 0; i < safetensors_n_tensors(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        size_t n = t->n_bytes < ENDS ? (size_t)t->n_bytes : ENDS;
        h = hash_bytes(t->name, strlen(t->name), h);
        h = hash_bytes(t->shape, t->n_dims * sizeof *t->shape, h ^ (uint64_t)t->dtype);
        h = hash_bytes(t->data, n, h);
        h = hash_bytes(t->data + t->n_bytes - n, n, h);
    }
    return h;
}

static int hash_folder(const char *dir, uint64_t *out, struct err *e) {
    char path[4096], *config = NULL;
    struct safetensors *st = NULL;
    size_t n = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", dir) >= sizeof path)
        return err_set(e, CHIMERE_ELIMIT, "--draft: path is too long");
    int rc = file_read(path, CONFIG_MAX, &config, &n, e);
    if (!rc) rc = safetensors_open(&st, dir, e);
    if (!rc) *out = hash_tensors(st, hash_bytes(config, n, 1));
    safetensors_close(st);
    mem_free(config);
    return rc;
}

static int convert(const struct cfg *c, const char *dir, char *out, size_t size, struct err *e) {
    char models[4096];
    uint64_t hash = 0;
    struct hf_result result;
    int rc = hash_folder(dir, &hash, e);
    if (!rc) rc = hub_args_dir(c, models, e);
    if (!rc) rc = file_mkdirs(models, e);
    if (rc) return rc;
    if ((size_t)snprintf(out, size, "%s/drafter-%016" PRIx64 ".gguf", models, hash) >= size)
        return err_set(e, CHIMERE_ELIMIT, "--models-dir: path is too long");
    if (file_exists(out)) return 0;
    const struct hf_options o = {.dir = dir, .out = out, .n_thread = (int)cfg_int(c, "threads")};
    rc = hf_convert(&o, &result, e);
    if (rc == CHIMERE_EIO)
        err_hint(e, "chimere convert %s FILE.gguf, then --draft FILE.gguf, needs no such folder",
                 dir);
    return rc;
}

int draft_args_take(struct cfg *c, struct err *e) {
    const char *name = cfg_str(c, "draft");
    char folder[4096], file[4096];
    bool is_hub = name && str_starts(name, "hf:");
    if (!name || (!is_hub && !fs_is_folder(name))) return 0;
    int rc = is_hub ? hub_args_checkpoint(c, name, folder, sizeof folder, e) : 0;
    if (!rc) rc = convert(c, is_hub ? folder : name, file, sizeof file, e);
    if (rc) return err_prefix(e, "--draft"), rc;
    return cfg_set(c, "draft", file, e);
}
