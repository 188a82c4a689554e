#include "engine/gpus.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/device.h"

enum split split_of(const char *name) {
    return strcmp(name, "replica") == 0  ? SPLIT_REPLICA
           : strcmp(name, "layer") == 0  ? SPLIT_LAYER
           : strcmp(name, "tensor") == 0 ? SPLIT_TENSOR
           : strcmp(name, "none") == 0   ? SPLIT_NONE
                                         : SPLIT_AUTO;
}

static bool is_named(const struct gpus *g, const char *name) {
    for (int32_t i = 0; i < g->n; i++)
        if (strcmp(g->names[i], name) == 0) return true;
    return false;
}

int gpus_parse(const char *text, struct gpus *out, struct err *e) {
    *out = (struct gpus){.n = 0};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = (int)strcspn(at, ",");
        bool is_cpu = n == 3 && strncmp(at, "cpu", 3) == 0;
        if (!is_cpu && !(n == 1 && *at >= '0' && *at <= '9'))
            return err_set(e, CHIMERE_EINVAL,
                           "--gpus: expected numbers of cards such as 0,1, got '%.*s'",
                           n < 20 ? n : 20, at);
        if (out->n == GPUS_MAX)
            return err_set(e, CHIMERE_EINVAL, "--gpus: expected at most %d cards", GPUS_MAX);
        char *name = out->names[out->n];
        snprintf(name, sizeof out->names[0], "%s%.*s", is_cpu ? "" : "cuda:", n, at);
        if (!is_cpu && is_named(out, name))
            return err_set(e, CHIMERE_EINVAL, "--gpus: card %c is named twice; name each once",
                           *at);
        out->n++;
    }
    return 0;
}

int gpus_answering(const char *text, char *out, size_t size, struct err *e) {
    struct gpus g;
    size_t n = 0;
    int rc = gpus_parse(text, &g, e);
    if (rc) return rc;
    *out = 0;
    for (int32_t i = 0; i < g.n; i++) {
        struct dev *d;
        const char *name = g.names[i], *colon = strchr(name, ':');
        const struct device_params p = {.name = name, .n_thread = 1};
        if (device_open(&d, &p, e)) {
            log_warn("%s is left out: %s", name, e->text);
            continue;
        }
        d->ops->close(d);
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", colon ? colon + 1 : name);
        if (n >= size) return err_set(e, CHIMERE_ELIMIT, "--gpus: the list is too long");
    }
    return n ? 0 : e->code;
}

/* Stores the weight bytes of each layer; prediction blocks and the output head count with the last layer. Returns the
 * sum. */
static uint64_t count_layers(const struct gguf *g, int32_t n_layer, uint64_t *bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int il = n_layer - 1;
        bool in_layer = sscanf(t->name, "blk.%d.", &il) == 1;
        if (il < 0 || (!in_layer && strncmp(t->name, "output", 6) != 0)) continue;
        if (il >= n_layer) il = n_layer - 1;
        bytes[il] += t->n_bytes;
        sum += t->n_bytes;
    }
    return sum;
}

static int cut(const struct gguf *g, int32_t n_layer, const uint64_t *share, int32_t n,
               struct layer_part *out, struct err *e) {
    uint64_t bytes[ARCH_MAX_LAYERS] = {0}, sum = count_layers(g, n_layer, bytes);
    double want = 0, all = 0, have = 0;
    int32_t il = 0;
    if (n_layer < n)
        return err_set(e, CHIMERE_ELIMIT, "--split layer: %d cards, but the model has %d layers", n,
                       n_layer);
    for (int32_t i = 0; i < n; i++) all += (double)share[i];
    for (int32_t i = 0; i < n; i++) {
        out[i].first = il;
        want += all > 0 ? (double)share[i] / all : 1.0 / n;
        do have += (double)bytes[il++];
        while (il < n_layer - (n - 1 - i) &&
               (i == n - 1 || have + (double)bytes[il] / 2 < want * (double)sum));
        out[i].end = il;
    }
    return 0;
}

int gpus_cut(const char *path, const uint64_t *share, int32_t n, struct layer_part *out,
             struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, path, e);
    if (rc) return rc;
    struct hparams *hp = mem_zalloc(sizeof *hp);
    rc = hp ? hparams_read(hp, g, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = cut(g, hp->n_layer, share, n, out, e);
    mem_free(hp);
    gguf_close(g);
    return rc;
}
