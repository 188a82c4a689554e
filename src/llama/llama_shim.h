/* llama_shim.h: the interface between the program and chimere-llama.so: a struct of functions that call libllama.
 *
 * The shared object (shim.c) is compiled with the user's llama.h and linked to the user's libllama. The program uses
 * only this header. It loads the object at run time (llama_lib.h), or sends messages to a process that has loaded it
 * (llama_process.h). Only plain C types are used, and neither side frees memory of the other. Any change of a struct or
 * of a meaning increases LLAMA_SHIM_VERSION.
 *
 * A model is used by one thread at a time. Functions that can fail return 0 or CHIMERE_E* and write one sentence to
 * text [LLAMA_SHIM_TEXT]. */
#ifndef CHIMERE_LLAMA_LLAMA_SHIM_H
#define CHIMERE_LLAMA_LLAMA_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LLAMA_SHIM_VERSION = 2, LLAMA_SHIM_TEXT = 480, LLAMA_SHIM_MAX_LORAS = 16 };

struct llama_shim_params {
    const char *path; /* borrowed for the call */
    /* vision encoder for libmtmd; borrowed for the call; NULL: no images */
    const char *mmproj;
    int32_t n_gpu_layers; /* -1: libllama's default */
    int32_t n_thread;
    int64_t n_ctx;           /* KV cells of all sequences together; 0: no context for generation */
    int32_t n_seq;           /* ids 0 .. n_seq - 1 */
    int32_t n_batch;         /* largest number of tokens per run */
    int32_t n_out;           /* largest number of logits rows per run */
    uint32_t k_type, v_type; /* types, as ggml numbers them */
    bool embeds;             /* the model is used for embed(); else it generates */
};

struct llama_shim_info {
    int32_t n_vocab, n_embd, n_ctx_train;
    int64_t n_ctx; /* KV cells that were allocated */
    int32_t n_seq; /* available ids, at least those requested */
    /* states consist of keys and values only: part of a sequence can be copied and removed */
    bool is_attention;
    int32_t n_row_embd; /* floats per image row; 0: no images */
    int32_t n_row_max;  /* largest number of image rows per item */
    uint64_t n_param, n_byte;
    char about[96]; /* libllama's description of the model */
};

struct llama_shim_item { /* next tokens of one sequence */
    int32_t seq, n_tok;
    int64_t pos; /* position of the first token */
    const int32_t *tokens;
    bool all, last; /* wanted rows of logits: of every token, or only of the last */
    uint32_t epoch; /* value of epoch() when the sequence's earlier tokens were evaluated */
    /* Rows of an image that replace the tokens: [n_tok, n_row_embd]; this must be the only item of its run. NULL:
     * text. */
    const float *rows;
    bool is_whole; /* its rows attend to each other, independent of their order */
};

/* An image as the model reads it: n_tok ids. Ids below 0 stand for rows. Consecutive rows with the same id form one
 * run; if the id is odd, the run must be evaluated as a whole (is_whole). */
struct shim_image;
struct llama_shim_image {
    int32_t n_tok, n_row;
};

struct shim_lora;
struct llama_shim_lora {
    struct shim_lora *lora;
    float scale;
};

struct shim_model;

struct llama_shim {
    uint32_t version; /* LLAMA_SHIM_VERSION */
    uint32_t n_byte;  /* sizeof (struct llama_shim) */

    /* Called once, before all others. log receives libllama's lines of level warning and above, without newline, on any
     * thread. Level 0: error; 1: warning; 2: the last line before libllama aborts. */
    int (*start)(void (*log)(int level, const char *line), char *text);
    const char *(*library)(void); /* name and version of the loaded libllama */

    int (*open)(struct shim_model **out, const struct llama_shim_params *p,
                struct llama_shim_info *info, char *text);
    void (*close)(struct shim_model *m);

    /* Evaluates items with the adapters. *logits: [rows, n_vocab] in the order of items, valid until the next call. If
     * it fails, the content of their sequences is undefined: remove them. */
    int (*run)(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
               const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
               char *text);
    /* Removes the positions from `from` on. Returns false if this memory cannot remove part of a sequence (from >
     * 0). */
    bool (*seq_remove)(struct shim_model *m, int32_t seq, int64_t from);
    /* Replaces sequence `to` by the first n positions of `seq`, sharing their cells; only with is_attention. */
    void (*seq_share)(struct shim_model *m, int32_t seq, int32_t to, int64_t n);

    /* Size of the state of one sequence in bytes; 0: it is not available, or does not fit. */
    size_t (*state_bytes)(struct shim_model *m, int32_t seq);
    size_t (*state_save)(struct shim_model *m, int32_t seq, void *out, size_t n);
    size_t (*state_load)(struct shim_model *m, int32_t seq, const void *in, size_t n);

    /* The adapter is closed together with the model. */
    int (*lora_open)(struct shim_model *m, const char *path, struct shim_lora **out, char *text);

    /* Computes the pooled vector [n_embd] of one text; libllama pools according to the file's keys. */
    int (*embed)(struct shim_model *m, const int32_t *tokens, int32_t n, float *out, char *text);
    /* Returns a number that changes when all sequences are lost. */
    uint32_t (*epoch)(const struct shim_model *m);

    /* NULL: without libmtmd. image_open decodes and encodes an image file whose size was checked. It may be called
     * while `run` is running, on any thread, for one image at a time. image_read: ids [n_tok] and rows [n_row,
     * n_row_embd]. */
    int (*image_open)(struct shim_model *m, const void *data, size_t n, struct shim_image **out,
                      struct llama_shim_image *info, char *text);
    void (*image_read)(const struct shim_image *i, int32_t *ids, float *rows);
    void (*image_close)(struct shim_image *i);
};

#define LLAMA_SHIM_SYMBOL "chimere_llama_shim"
/* The only function that chimere-llama.so exports. */
const struct llama_shim *chimere_llama_shim(void);

#endif
