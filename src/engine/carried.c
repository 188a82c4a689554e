#include "engine/carried.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/ngram_memory.h"

struct carried *carried_new(const int32_t *tokens, int32_t n) {
    struct carried *c = mem_zalloc(sizeof *c);
    if (c) c->tokens = mem_alloc_array((size_t)n, sizeof *tokens);
    if (!c || !c->tokens) {
        mem_free(c);
        return NULL;
    }
    memcpy(c->tokens, tokens, (size_t)n * sizeof *tokens);
    c->n = n;
    return c;
}

void carried_drop(struct engine_job *j) {
    struct carried *c = j->carried;
    if (!c) return;
    sampler_free(c->sampler);
    engram_mixer_free(c->engram);
    mem_free(c->tokens);
    mem_free(c);
    j->carried = NULL;
}
