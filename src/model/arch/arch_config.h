/* arch_config.h: functions with which the families' `derive` reads config.json. Pure functions; any thread. */
#ifndef CHIMERE_MODEL_ARCH_CONFIG_H
#define CHIMERE_MODEL_ARCH_CONFIG_H

#include "model/arch/arch.h"

/* A field's value, or def if it is absent or of another type. */
int64_t arch_config_int(const json_t *config, const char *name, int64_t def);
double arch_config_number(const json_t *config, const char *name, double def);
bool arch_config_is(const json_t *config, const char *name, const char *word);
/* Item i of a list of numbers, or def. */
double arch_config_item(const json_t *config, const char *name, size_t i, double def);

/* Which layers of a decoder use config.json's sliding_window, if layer_types does not list them. */
enum arch_config_window {
    WINDOW_EVERYWHERE,
    WINDOW_IF_USED,      /* all layers if use_sliding_window is true */
    WINDOW_IF_USED_LATE, /* the same, from max_window_layers on */
};
/* Writes attention.sliding_window, and the pattern unless all layers use the window. */
int arch_config_put_windows(const json_t *config, const char *arch, enum arch_config_window rule,
                            struct gguf_writer *w, struct err *e);

#endif
