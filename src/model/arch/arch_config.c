/* arch_config.c: see arch_config.h. */
#include "model/arch/arch_config.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

int64_t arch_config_int(const json_t *config, const char *name, int64_t def) {
    const json_t *v = json_object_get(config, name);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : def;
}

double arch_config_number(const json_t *config, const char *name, double def) {
    const json_t *v = json_object_get(config, name);
    return json_is_number(v) ? json_number_value(v) : def;
}

bool arch_config_is(const json_t *config, const char *name, const char *word) {
    const char *v = json_string_value(json_object_get(config, name));
    return v && strcmp(v, word) == 0;
}

double arch_config_item(const json_t *config, const char *name, size_t i, double def) {
    const json_t *v = json_array_get(json_object_get(config, name), i);
    return json_is_number(v) ? json_number_value(v) : def;
}

int arch_config_put_windows(const json_t *config, const char *arch, enum arch_config_window rule,
                            struct gguf_writer *w, struct err *e) {
    int64_t window = arch_config_int(config, "sliding_window", 0);
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t n_windowed = 0, first = 0;
    if (rule == WINDOW_IF_USED_LATE) first = arch_config_int(config, "max_window_layers", 28);
    const json_t *types = json_object_get(config, "layer_types");
    uint8_t windowed[ARCH_MAX_LAYERS];
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS)
        return err_set(e, CHIMERE_EFORMAT, "config.json: num_hidden_layers: expected 1 to %d",
                       ARCH_MAX_LAYERS);
    for (int64_t il = 0; il < n_layer; il++) {
        const char *type = json_string_value(json_array_get(types, (size_t)il));
        bool is_sliding = type && strcmp(type, "sliding_attention") == 0;
        if (type && !is_sliding && strcmp(type, "full_attention") != 0)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: layer_types: expected full_attention or "
                           "sliding_attention, got '%s'",
                           type);
        windowed[il] = type ? is_sliding : il >= first;
        n_windowed += windowed[il];
    }
    const json_t *use = json_object_get(config, "use_sliding_window");
    bool is_used = rule == WINDOW_EVERYWHERE ? !json_is_false(use) : json_is_true(use);
    if (!is_used || window < 1 || !n_windowed) return 0;
    if (window > INT32_MAX)
        return err_set(e, CHIMERE_EFORMAT, "config.json: sliding_window: expected below 2^31");
    char key[80];
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
    gguf_put_u32(w, key, (uint32_t)window);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    if (n_windowed < n_layer) gguf_put_array(w, key, GGUF_BOOL, windowed, (size_t)n_layer);
    return 0;
}
