/* load.h: opens a model file and everything needed to answer: device, weights, tokenizer, template, adapters, engine.
 *
 * The memory plan is made first, so that a model that does not fit is refused before its weights are read. The caller
 * of load_open calls load_close after every answer has ended. */
#ifndef CHIMERE_ENGINE_LOAD_H
#define CHIMERE_ENGINE_LOAD_H

#include "engine/gpus.h"
#include "engine/plan.h"
#include "format/gguf.h"
#include "model/lora.h"
#include "kernels/device.h"
#include "text/chat/chat.h"

enum { LOAD_MAX_LORAS = 16 };

/* What runs a model. own: Chimère's forward pass. llama: libllama (lm_llama.h). auto: libllama if our architecture
 * table has no row for the file's architecture. */
enum load_backend { LOAD_AUTO, LOAD_OWN, LOAD_LLAMA };

struct load_params {
    const char *path;
    enum load_backend backend;
    /* path of chimere-llama.so; borrowed until the last load_open; NULL: the installed one */
    const char *llama_library;
    /* vision encoder for libmtmd; borrowed until load_open returns; NULL: none */
    const char *mmproj;
    /* run libllama in a separate process, so that an abort inside it does not end the server */
    bool llama_process;
    int32_t n_gpu_layers; /* layers that libllama puts on GPUs; -1: libllama's default */
    const char *device;   /* name as in device.h; NULL: auto; borrowed for the call */
    /* an open device instead of `device`; ownership passes, also on failure; NULL: none */
    struct dev *opened;
    /* GPUs as in gpus.h, instead of `device`; borrowed for the call; NULL: none */
    const char *gpus;
    enum split split; /* how these GPUs share the model */
    /* [n_more] open devices besides `opened`, one replica on each; ownership passes as for `opened` */
    struct dev *const *more;
    int32_t n_more;
    int32_t n_thread; /* 0: one per core */
    enum cpu_isa isa;
    uint64_t vram_bytes;     /* limit of GPU memory to use; 0: all that is free */
    struct plan_params plan; /* load_open sets its dev and vram_bytes */
    bool no_fit; /* use plan.n_ctx and plan.n_seq as given, even if the memory is too small */
    /* text of a chat template that replaces the file's; borrowed for the call */
    const char *template;
    const char *const *loras; /* [n_lora] "FILE" or "FILE:SCALE"; borrowed for the call */
    size_t n_lora;
    bool quiet; /* do not show a progress bar */
    /* keep a file of how often experts in slots or on disk are used, and fill from it (expert_profile.h) */
    bool expert_profile;
};
void load_defaults(struct load_params *p);

/* The same model on another card, with an engine that is led by the engine of the first card (team.h). For SPLIT_LAYER
 * and SPLIT_TENSOR: the part of the model on that card, without an engine. */
struct replica {
    struct dev *dev;                    /* owned */
    struct model *model;                /* owned */
    struct lora *loras[LOAD_MAX_LORAS]; /* owned */
    struct engine *engine;              /* owned */
    struct memory_plan plan;
    struct layer_part part; /* layers on this card; end 0: all layers */
    char name[8];           /* name of its device */
};

struct loaded {
    struct dev *dev;                       /* owned; NULL: libllama runs the model */
    struct model *model;                   /* owned; NULL: libllama runs it */
    struct gguf *gguf;                     /* owned; NULL: model->gguf is used instead */
    struct tok *tok;                       /* owned */
    struct chat_template *template;        /* owned; NULL: the model has none */
    struct engine *engine;                 /* owned */
    struct expert_profile *profile;        /* owned; NULL: none is kept */
    struct vision *vision;                 /* owned; NULL: the model cannot process images */
    struct lora_use loras[LOAD_MAX_LORAS]; /* owned */
    int32_t n_lora;
    struct memory_plan plan;  /* plan with which the model was opened */
    struct replica *replicas; /* owned [n_replica]: all cards except the first */
    int32_t n_replica;
    /* owned [n_engine - 1]: engines that take turns with `engine`, which leads them, on the cards' layers */
    struct engine *engines[GPUS_MAX];
    struct lm_turns *turns; /* owned; NULL: one engine per card, or for all cards */
    int32_t n_engine;       /* 0 or 1: no others */
    struct layer_part part; /* layers on the first card; end 0: all layers */
    const char *why; /* the reason for the split; static; NULL: the user's choice, or one card */
    bool is_split;   /* each card has some of the layers, or a slice of each layer */
    char card[8];    /* name of the first card; empty if only one card is used */
    char name[128];  /* name of the model */
};

/* Adapts the default sampling of all models to this model. Dense models of 50 to 500 million weights repeat themselves
 * at temperature 0.7, so they get temperature 0.3 and a DRY penalty of 0.8. With SmolLM2-135M on eval/newcomer, 24
 * instead of 20 of 60 answers were accepted, and no answer looped instead of three. Recommendations in the file
 * (general.sampling.*, as llama.cpp names them) take precedence; values out of range are ignored. */
void load_sampling(const struct gguf *g, struct sampler_params *p);

int32_t load_n_seq(const struct loaded *l); /* concurrent sequences, over all cards */
/* the file's metadata and tensor directory; view */
const struct gguf *load_gguf(const struct loaded *l);
/* Reports what load_open would refuse, from headers alone: plan, architecture, tokenizer, template, adapter files. Does
 * not read weights. plan may be NULL. */
int load_check(const struct load_params *p, struct memory_plan *plan, struct err *e);
int load_open(struct loaded *l, const struct load_params *p, struct err *e);
void load_close(struct loaded *l); /* *l may be all zero */

#endif
