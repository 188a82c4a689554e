/* load.h: a model from its file to an engine that answers: device, weights, tokenizer, template, adapters.
 *
 * The plan comes first: what does not fit is refused before anything is read. Whoever opened it closes it,
 * after every answer has ended. */
#ifndef CHIMERE_ENGINE_LOAD_H
#define CHIMERE_ENGINE_LOAD_H

#include "engine/gpus.h"
#include "engine/plan.h"
#include "format/gguf.h"
#include "model/lora.h"
#include "kernels/device.h"
#include "text/chat/chat.h"

enum { LOAD_MAX_LORAS = 16 };

/* Who runs a model: our forward pass; libllama (lm_llama.h); auto: libllama if our table has no row for the file's
 * architecture. */
enum load_backend { LOAD_AUTO, LOAD_OWN, LOAD_LLAMA };

struct load_params {
    const char *path;
    enum load_backend backend;
    const char *
        llama_library; /* chimere-llama.so; borrowed until the last load_open; NULL: as installed */
    const char
        *mmproj; /* what libmtmd sees with; borrowed until load_open returns; NULL: nothing */
    bool llama_process;   /* libllama in a process of its own: an abort inside it ends no server */
    int32_t n_gpu_layers; /* that libllama gives to GPUs; -1: its default */
    const char *device;   /* device.h; NULL: auto; borrowed for the call */
    struct dev *opened;   /* taken over, also on failure, in place of device; NULL: none */
    const char *gpus;     /* gpus.h, in place of device; borrowed for the call; NULL: none */
    enum split split;     /* how they share the model */
    struct dev *const *more; /* [n_more] taken over likewise, beside opened: a replica on each */
    int32_t n_more;
    int32_t n_thread; /* 0: one a core */
    enum cpu_isa isa;
    uint64_t vram_bytes;     /* take no more of a GPU; 0: what is free */
    struct plan_params plan; /* its dev and vram_bytes are set by load_open */
    bool no_fit; /* takes plan.n_ctx and plan.n_seq as they are, whatever memory there is */
    const char
        *template; /* text of a chat template in place of the file's own; borrowed for the call */
    const char *const *loras; /* [n_lora] "FILE" or "FILE:SCALE"; borrowed for the call */
    size_t n_lora;
    bool quiet; /* no progress bar */
};
void load_defaults(struct load_params *p);

/* The model once more, on another card, behind the engine of the first (team.h); of SPLIT_LAYER a part of its layers, as
 * struct loaded has the first part, without an engine. */
struct replica {
    struct dev *dev;                    /* owned */
    struct model *model;                /* owned */
    struct lora *loras[LOAD_MAX_LORAS]; /* owned */
    struct engine *engine;              /* owned */
    struct memory_plan plan;
    struct layer_part part; /* end 0: all layers */
    char name[8];           /* of its device */
};

struct loaded {
    struct dev *dev;                       /* owned; NULL: libllama runs the model */
    struct model *model;                   /* owned; NULL: libllama runs it */
    struct gguf *gguf;                     /* owned; NULL: the model has it */
    struct tok *tok;                       /* owned */
    struct chat_template *template;        /* owned; NULL: the model has none */
    struct engine *engine;                 /* owned */
    struct vision *vision;                 /* owned; NULL: it sees no images */
    struct lora_use loras[LOAD_MAX_LORAS]; /* owned */
    int32_t n_lora;
    struct memory_plan plan;  /* what it was opened with */
    struct replica *replicas; /* owned [n_replica], the first card's apart */
    int32_t n_replica;
    struct layer_part part; /* of the first card; end 0: all layers */
    bool is_split;          /* each card has a part of the layers, or of each layer */
    char card[8];           /* the first card's name, where several were named; else empty */
    char name[128];         /* of the model */
};

/* The default sampling of a model, given that of all models. Dense models of 50 to 500 million weights repeat
 * themselves at temperature 0.7: they get 0.3 and the DRY penalty at 0.8. SmolLM2-135M on eval/newcomer: 24
 * instead of 20 of 60 answers accepted, and no loop instead of three. What the file itself recommends
 * (general.sampling.*, as llama.cpp names it) wins; values out of range are not used. */
void load_sampling(const struct gguf *g, struct sampler_params *p);

int32_t load_n_seq(const struct loaded *l);           /* sequences at once, of all cards */
const struct gguf *load_gguf(const struct loaded *l); /* the file's keys and directory; view */
/* What load_open would refuse, read from headers: plan, family, tokenizer, template, adapters' files. No
 * weights are read. plan may be NULL. */
int load_check(const struct load_params *p, struct memory_plan *plan, struct err *e);
int load_open(struct loaded *l, const struct load_params *p, struct err *e);
void load_close(struct loaded *l); /* also one that is all zero */

#endif
