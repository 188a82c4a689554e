/* lm_llama.h: a model that libllama runs, as an implementation of lm.h.
 *
 * The library is an object that is loaded at run time (llama/llama_lib.h), or a process that has loaded it. Tokens,
 * templates, sampling and everything above are our own. */
#ifndef CHIMERE_ENGINE_LM_LLAMA_H
#define CHIMERE_ENGINE_LM_LLAMA_H

#include "engine/lm.h"
#include "engine/vision.h"
#include "format/gguf.h"
#include "llama/llama_shim.h"

struct lm_llama_params {
    const char *path;    /* borrowed for the call */
    const char *mmproj;  /* what libmtmd sees with; borrowed for the call; NULL: nothing */
    const char *library; /* chimere-llama.so; borrowed for the call; NULL: where it is installed */
    const struct gguf *gguf; /* the same file; borrowed for the call */
    struct engine_params
        engine;           /* of the plan; out: as the model runs, batch and speculation changed */
    uint64_t page_bytes;  /* of KV_PAGE positions, by the plan */
    int32_t n_thread;     /* 0: by topology */
    int32_t n_gpu_layers; /* -1: libllama's default */
    bool is_process;      /* libllama in a process of its own */
};

int lm_open_llama(struct lm **out, struct lm_llama_params *p, struct err *e);
/* An adapter of that model; its handle is closed with the model. */
int lm_llama_lora(struct lm *l, const char *path, struct lora **out, struct err *e);
/* Its images, to be freed before the engine; NULL: it sees none. */
int lm_llama_vision(struct lm *l, uint64_t salt, struct vision **out, struct err *e);
const char *lm_llama_about(const struct lm *l); /* what libllama calls the model */

#endif
