/* hf_modules.c: the modules of a sentence-transformers folder that follow the transformer.
 *
 * Pooling is read by hf_config.c; vectors are normalized on request, whether or not the folder has the module. Dense
 * layers become tensors: "2_Dense.linear.weight" is linear.weight of the folder of the first one, whatever its name. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/hf_impl.h"

enum { MODULE_MAX = 1 << 20, MAX_DENSE = 2 };

/* Name of a module's class without its package. */
static const char *class_of(const json_t *module) {
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type;
}

static bool has_rows(const struct hf *h, const char *gguf) {
    for (const struct tensor_row *const *table = h->arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++)
            if (strcmp(row->gguf, gguf) == 0) return true;
    return false;
}

static int read_dense_config(struct hf *h, int i, struct err *e) {
    char name[96];
    json_t *config;
    snprintf(name, sizeof name, "%s/config.json", h->dense[i].folder);
    int rc = hf_read_json(h->options->dir, name, MODULE_MAX, true, &config, e);
    if (rc) return rc;
    const char *act = json_string_value(json_object_get(config, "activation_function"));
    const char *last = act ? strrchr(act, '.') : NULL;
    json_int_t n_in = json_integer_value(json_object_get(config, "in_features"));
    json_int_t n_out = json_integer_value(json_object_get(config, "out_features"));
    last = last ? last + 1 : act;
    h->dense[i].has_tanh = !last || strcmp(last, "Tanh") == 0; /* sentence-transformers' default */
    if (!h->dense[i].has_tanh && strcmp(last, "Identity") != 0)
        rc = err_set(e, CHIMERE_EUNSUPPORTED,
                     "%s: activation_function: expected Identity or Tanh, got '%s'", name, act);
    else if (n_in < 1 || n_in > 1 << 20 || n_out < 1 || n_out > 1 << 20)
        rc = err_set(e, CHIMERE_EFORMAT, "%s: in_features or out_features: expected 1 to %d", name,
                     1 << 20);
    h->dense[i].n_in = (uint32_t)n_in;
    h->dense[i].n_out = (uint32_t)n_out;
    json_decref(config);
    return rc;
}

static int add_dense_tensors(struct hf *h, int i, struct err *e) {
    const char *dir = h->options->dir, *folder = h->dense[i].folder;
    size_t size = strlen(dir) + strlen(folder) + sizeof "//model.safetensors";
    char *path = mem_alloc(size), prefix[16];
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    snprintf(path, size, "%s/%s/model.safetensors", dir, folder);
    snprintf(prefix, sizeof prefix, "%d_Dense.", i + 2);
    int rc = safetensors_add(h->st, path, prefix, e);
    mem_free(path);
    return rc;
}

static int add_dense(struct hf *h, const json_t *module, struct err *e) {
    const char *folder = json_string_value(json_object_get(module, "path"));
    char row[24];
    int i = h->dense[0].folder[0] ? 1 : 0;
    snprintf(row, sizeof row, "dense_%d.weight", i + 2);
    if (h->dense[1].folder[0] || !has_rows(h, row))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "modules.json: expected at most %d of Dense in a %s model, got more",
                       has_rows(h, row) ? MAX_DENSE : 0, h->arch->name);
    if (!folder || !folder[0] || strlen(folder) >= sizeof h->dense[i].folder ||
        strchr(folder, '/') || folder[0] == '.')
        return err_set(e, CHIMERE_EREFUSED,
                       "modules.json: path: expected a folder beside it, got '%s'",
                       folder ? folder : "(none)");
    snprintf(h->dense[i].folder, sizeof h->dense[i].folder, "%s", folder);
    int rc = read_dense_config(h, i, e);
    return rc ? rc : add_dense_tensors(h, i, e);
}

int hf_read_modules(struct hf *h, struct err *e) {
    static const char *const order[] = {"Transformer", "Pooling", "Dense", "Normalize"};
    enum { N_CLASS = sizeof order / sizeof order[0], DENSE = 2 };
    json_t *modules, *item;
    size_t i, at = 0;
    int rc = hf_read_json(h->options->dir, "modules.json", MODULE_MAX, false, &modules, e);
    json_array_foreach(modules, i, item) {
        const char *name = class_of(item);
        size_t k = 0;
        if (rc || !name) continue;
        while (k < N_CLASS && strcmp(name, order[k]) != 0) k++;
        if (k == N_CLASS || k < at)
            rc = err_set(e, CHIMERE_EUNSUPPORTED,
                         "modules.json: expected Transformer, Pooling, Dense and Normalize in this "
                         "order, got '%s'",
                         json_string_value(json_object_get(item, "type")));
        else if (k == DENSE) rc = add_dense(h, item, e);
        at = k;
    }
    json_decref(modules);
    return rc;
}

void hf_put_dense(const struct hf *h, struct gguf_writer *w) {
    char key[GGUF_MAX_NAME];
    for (int i = 0; i < MAX_DENSE && h->dense[i].folder[0]; i++) {
        int n = snprintf(key, sizeof key, "%s.dense_%d_", h->arch->name, i + 2);
        snprintf(key + n, sizeof key - (size_t)n, "feat_in");
        gguf_put_u32(w, key, h->dense[i].n_in);
        snprintf(key + n, sizeof key - (size_t)n, "feat_out");
        gguf_put_u32(w, key, h->dense[i].n_out);
        snprintf(key + n, sizeof key - (size_t)n, "activation");
        if (h->dense[i].has_tanh) gguf_put_str(w, key, "tanh", 4);
    }
}
