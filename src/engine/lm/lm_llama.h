/* lm_llama.h: an implementation of lm.h for a model that libllama runs.
 *
 * The library is a shared object that is loaded at run time (llama/llama_lib.h), or it is loaded in a separate process.
 * Tokenizer, chat templates, sampling and all layers above are Chimère's. */
#ifndef CHIMERE_ENGINE_LM_LLAMA_H
#define CHIMERE_ENGINE_LM_LLAMA_H

#include "engine/lm.h"
#include "engine/vision.h"
#include "format/gguf.h"
#include "llama/llama_shim.h"

struct lm_llama_params {
    const char *path;   /* borrowed for the call */
    const char *mmproj; /* vision encoder for libmtmd; borrowed for the call; NULL: no images */
    /* path of chimere-llama.so; borrowed for the call; NULL: the installed one */
    const char *library;
    const struct gguf *gguf; /* the file at path, already open; borrowed for the call */
    /* in: from the plan; out: as the model runs; batch size and speculation may have changed */
    struct engine_params engine;
    uint64_t page_bytes;  /* size of KV_PAGE positions, from the plan */
    int32_t n_thread;     /* 0: from the CPU topology */
    int32_t n_gpu_layers; /* -1: libllama's default */
    bool is_process;      /* libllama runs in a separate process */
};

int lm_open_llama(struct lm **out, struct lm_llama_params *p, struct err *e);
/* Loads an adapter for that model; its handle is closed together with the model. */
int lm_llama_lora(struct lm *l, const char *path, struct lora **out, struct err *e);
/* Access to the model's vision encoder; free it before the engine. NULL: the model has none. */
int lm_llama_vision(struct lm *l, uint64_t salt, struct vision **out, struct err *e);
const char *lm_llama_about(const struct lm *l); /* libllama's description of the model */

#endif
