#include "engine/gpus.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum split split_of(const char *name) {
    return strcmp(name, "replica") == 0 ? SPLIT_REPLICA
           : strcmp(name, "none") == 0  ? SPLIT_NONE
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
