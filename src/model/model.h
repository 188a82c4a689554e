/* model.h: a loaded model: hyperparameters, weights on a device, tokenizer, RoPE tables.
 *
 * Immutable once open, except for what forwards reserve; any number of sequences, pools and forwards may share it. They
 * borrow it until model_close. */
#ifndef CHIMERE_MODEL_MODEL_H
#define CHIMERE_MODEL_MODEL_H

#include "model/arch/arch.h"
#include "model/weights.h"

struct model {
    struct hparams hp;
    struct gguf *gguf;         /* owned */
    struct weights weights;    /* owned */
    struct model_slice *slice; /* owned; NULL: dev has all of each layer */
    struct dev *dev;           /* borrowed */
    struct dev *host;          /* owned; NULL: the host does not multiply experts for dev */
    float *inv_freq;           /* owned by the device [n_rot / 2] */
    float *inv_freq_window;    /* the same for layers with a window; NULL: not different */
    float *ones;               /* owned by the device [d_v]; NULL: not needed */
    float *attn_bias; /* owned by the device [n_head, 2 n_attn_bias + 1], by distance; NULL: none */
    int32_t n_attn_bias;
    struct weight draft_head; /* draft_head.h; data NULL: drafts use the head */
    int32_t n_draft_id;       /* prediction blocks compute logits of so many ids; 0: all */
    void *draft_head_memory;  /* owned by the device; NULL: none */
    /* forwards that exist, and what dev has reserved for all of them (forward_new) */
    int32_t n_forward;
    struct dev_need need;
    /* over keys, directory and samples of the data: identifies the model in files */
    uint64_t hash;
    char name[128]; /* general.name, else the file's name */
};

/* quiet: no progress bar. */
int model_open(struct model **out, const char *path, struct dev *dev, bool quiet, struct err *e);
/* The same, with the experts of some layers on the host. */
int model_open_placed(struct model **out, const char *path, struct dev *dev,
                      const struct expert_placement *where, bool quiet, struct err *e);
/* The same, with a part of the layers (forward_run_part). */
int model_open_part(struct model **out, const char *path, struct dev *dev,
                    const struct expert_placement *where, struct layer_part part, bool quiet,
                    struct err *e);
/* Slice `rank` of n of every layer (slice.h, forward_link). */
int model_open_slice(struct model **out, const char *path, struct dev *dev, int32_t rank, int32_t n,
                     bool quiet, struct err *e);
/* A drafter: has neither embedding nor head. */
int model_open_drafter(struct model **out, const char *path, struct dev *dev, struct err *e);
void model_close(struct model *m);

/* Hash of a GGUF file: every key, every directory entry, and both ends of every tensor. */
uint64_t model_hash_file(const struct gguf *g);

/* Weight bytes read per decoded token plus recurrent state read and written (the roofline's bytes). */
uint64_t model_bytes_per_tok(const struct model *m);
/* Recurrent state of one sequence. */
uint64_t model_state_bytes(const struct hparams *hp);
uint64_t model_n_params(const struct model *m);

#endif
