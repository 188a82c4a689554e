#include "cli/encoder_args.h"

#include <stdio.h>
#include <string.h>

#include "cli/model_args.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"

void encoder_stem(const char *path, char *out, size_t size) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(out, size, "%.*s", (int)size - 1, base);
    char *part = strstr(out, "-00001-of-"), *end = strrchr(out, '.');
    if (part) *part = 0;
    else if (end && strcmp(end, ".gguf") == 0) *end = 0;
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

void encoder_rig_close(struct encoder_rig *r) {
    tok_free(r->tok);
    model_close(r->m);
    if (r->dev) r->dev->ops->close(r->dev);
    *r = (struct encoder_rig){.dev = NULL};
}
