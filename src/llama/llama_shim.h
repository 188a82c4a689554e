/* llama_shim.h: what the program and chimere-llama.so agree on: a struct of functions over libllama.
 *
 * The shared object (shim.c) is built against the user's own llama.h and linked to the user's own libllama; the
 * program knows this header alone and loads the object at run time (llama_lib.h), or talks to a process that has
 * loaded it (llama_process.h). Plain C types only; no memory crosses that the other side frees. A change of any
 * struct or meaning raises LLAMA_SHIM_VERSION.
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
    const char
        *mmproj; /* what libmtmd sees with; borrowed for the call; NULL: the model sees nothing */
    int32_t n_gpu_layers; /* -1: libllama's default */
    int32_t n_thread;
    int64_t n_ctx;           /* cells of all sequences together; 0: no context for generation */
    int32_t n_seq;           /* ids 0 .. n_seq - 1 */
    int32_t n_batch;         /* tokens of one run */
    int32_t n_out;           /* rows of logits of one run */
    uint32_t k_type, v_type; /* ggml's numbers */
    bool embeds;             /* embed() is used; else the model generates */
};

struct llama_shim_info {
    int32_t n_vocab, n_embd, n_ctx_train;
    int64_t n_ctx; /* cells that there are */
    int32_t n_seq; /* ids that there are, at least those asked for */
    bool
        is_attention; /* states are keys and values alone: a part of a sequence can be copied and removed */
    int32_t n_row_embd; /* numbers of one row of an image; 0: it sees nothing */
    int32_t n_row_max;  /* rows of one item */
    uint64_t n_param, n_byte;
    char about[96]; /* what libllama calls it */
};

struct llama_shim_item { /* next tokens of one sequence */
    int32_t seq, n_tok;
    int64_t pos; /* of the first */
    const int32_t *tokens;
    bool all, last; /* rows of logits: of every token, or of the last */
    uint32_t epoch; /* as epoch() was when its earlier tokens were evaluated */
    /* Of an image, in place of tokens: [n_tok, n_row_embd], the only item of its run; NULL: text. */
    const float *rows;
    bool is_whole; /* they attend to each other, whatever their order */
};

/* An image as the model reads it: n_tok ids, of which those below 0 stand for rows. Rows that follow each other and have the
 * same number are one run; an odd number: the run is evaluated at once (is_whole). */
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

    /* Once, before all others. log: libllama's lines from warnings on, without a newline; any thread. Level 0: error, 1:
     * warning, 2: its last words before it aborts. */
    int (*start)(void (*log)(int level, const char *line), char *text);
    const char *(*library)(void); /* name and version of the libllama that is loaded */

    int (*open)(struct shim_model **out, const struct llama_shim_params *p,
                struct llama_shim_info *info, char *text);
    void (*close)(struct shim_model *m);

    /* Evaluates items under the adapters; *logits: [rows, n_vocab] in the order of items, until the next call. After a
     * failure the content of their sequences is undefined: remove them. */
    int (*run)(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
               const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
               char *text);
    /* Forgets positions from `from` on. False: this memory cannot forget a part (from > 0). */
    bool (*seq_remove)(struct shim_model *m, int32_t seq, int64_t from);
    /* Sequence `to` is removed and becomes the first n positions of `seq`, sharing their cells; is_attention only. */
    void (*seq_share)(struct shim_model *m, int32_t seq, int32_t to, int64_t n);

    /* The state of one sequence as bytes; 0: it cannot be had, or does not fit. */
    size_t (*state_bytes)(struct shim_model *m, int32_t seq);
    size_t (*state_save)(struct shim_model *m, int32_t seq, void *out, size_t n);
    size_t (*state_load)(struct shim_model *m, int32_t seq, const void *in, size_t n);

    /* Closed with the model. */
    int (*lora_open)(struct shim_model *m, const char *path, struct shim_lora **out, char *text);

    /* The pooled vector [n_embd] of one text, as libllama pools it by the file's keys. */
    int (*embed)(struct shim_model *m, const int32_t *tokens, int32_t n, float *out, char *text);
    /* Changes when all sequences are lost. */
    uint32_t (*epoch)(const struct shim_model *m);

    /* NULL: without libmtmd. A file of an image whose size has been checked, decoded and encoded; beside run, on any thread,
     * one image at a time. read: ids [n_tok] and rows [n_row, n_row_embd]. */
    int (*image_open)(struct shim_model *m, const void *data, size_t n, struct shim_image **out,
                      struct llama_shim_image *info, char *text);
    void (*image_read)(const struct shim_image *i, int32_t *ids, float *rows);
    void (*image_close)(struct shim_image *i);
};

#define LLAMA_SHIM_SYMBOL "chimere_llama_shim"
/* The one function that chimere-llama.so exports. */
const struct llama_shim *chimere_llama_shim(void);

#endif
