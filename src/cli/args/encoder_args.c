#include "cli/args/encoder_args.h"

#include <stdio.h>
#include <string.h>

#include "cli/args/model_args.h"
#include "kernels/cpu/cpu.h"
#include "llama/llama_lib.h"
#include "model/vocab.h"

void encoder_stem(const char *path, char *out, size_t size) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(out, size, "%.*s", (int)size - 1, base);
    char *part = strstr(out, "-00001-of-"), *end = strrchr(out, '.');
    if (part) *part = 0;
    else if (end && strcmp(end, ".gguf") == 0) *end = 0;
}

static const char *library_of(const struct cfg *c) {
    return cfg_has(c, "llama-library") ? cfg_str(c, "llama-library") : NULL;
}

int encoder_rig_open(struct encoder_rig *r, const struct cfg *c, const char *option,
                     struct err *e) {
    const char *path = cfg_str(c, option);
    *r = (struct encoder_rig){.dev = NULL};
    if (!path) return 0;
    encoder_stem(path, r->name, sizeof r->name);
    int rc = cpu_open(&r->dev, (int)cfg_int(c, "threads"), model_args_isa(c), e);
    if (!rc) rc = model_open(&r->m, path, r->dev, cfg_bool(c, "quiet"), e);
    if (!rc) rc = vocab_load(&r->tok, r->m->gguf, e);
    if (rc) err_prefix(e, "--%s", option);
    if (rc) encoder_rig_close(r);
    return rc;
}

/* Decides whether libllama runs the file at path; opens r->gguf for it. */
static int is_foreign(struct encoder_rig *r, const struct cfg *c, const char *path, bool *foreign,
                      struct err *e) {
    const struct llama_shim *shim;
    const char *backend = cfg_has(c, "gpu-layers") ? cfg_str(c, "backend") : "auto";
    *foreign = strcmp(backend, "llama") == 0;
    if (strcmp(backend, "own") == 0) return 0;
    int rc = gguf_open(&r->gguf, path, e);
    if (rc || *foreign) return rc;
    if (!arch_is_known(r->gguf)) *foreign = llama_lib_open(&shim, library_of(c), NULL, NULL) == 0;
    if (*foreign) return 0;
    gguf_close(r->gguf);
    r->gguf = NULL;
    return 0;
}

int encoder_rig_embed(struct encoder_rig *r, const struct cfg *c, const char *option,
                      struct embed **out, struct err *e) {
    const char *path = cfg_str(c, option);
    bool foreign;
    *out = NULL;
    *r = (struct encoder_rig){.dev = NULL};
    int rc = path ? is_foreign(r, c, path, &foreign, e) : 0;
    if (rc || !path) return rc;
    if (!foreign) {
        rc = encoder_rig_open(r, c, option, e);
        return rc ? rc : embed_open(out, r->m, r->tok, 0, e);
    }
    encoder_stem(path, r->name, sizeof r->name);
    rc = vocab_load(&r->tok, r->gguf, e);
    const struct embed_llama_params p = {.g = r->gguf,
                                         .path = path,
                                         .library = library_of(c),
                                         .tok = r->tok,
                                         .n_thread = (int32_t)cfg_int(c, "threads"),
                                         .is_process = cfg_has(c, "backend-process") &&
                                                       cfg_bool(c, "backend-process")};
    if (!rc) rc = embed_open_llama(out, &p, e);
    if (rc) err_prefix(e, "--%s", option);
    if (rc) encoder_rig_close(r);
    return rc;
}

void encoder_rig_close(struct encoder_rig *r) {
    tok_free(r->tok);
    model_close(r->m);
    if (r->gguf) gguf_close(r->gguf);
    if (r->dev) r->dev->ops->close(r->dev);
    *r = (struct encoder_rig){.dev = NULL};
}
