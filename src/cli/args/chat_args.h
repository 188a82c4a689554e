/* chat_args.h: shared by the commands that generate text: sampling options, engine, template. */
#ifndef CHIMERE_CLI_CHAT_ARGS_H
#define CHIMERE_CLI_CHAT_ARGS_H

#include "cli/args/model_args.h"
#include "backend/answer.h"
#include "engine/load.h"
#include "engine/ngram_memory.h"
#include "kernels/link.h"

/* clang-format off */
#define SAMPLING_OPTIONS                                                                           \
    {"temp", 0, CFG_FLOAT, "T", "0.7", 0, 100, NULL, "temperature; 0: always the likeliest token (default of dense models below 500 M weights: 0.3)"}, \
    {"seed", 's', CFG_INT, "N", NULL, 0, 9007199254740992.0, NULL, "random seed (default: a new one)"}, \
    {"top-k", 0, CFG_INT, "N", "20", 0, 1 << 30, NULL, "keep the N likeliest; 0: off"},             \
    {"top-p", 0, CFG_FLOAT, "P", "0.8", 0, 1, NULL, "keep the likeliest with P together; 1: off"},   \
    {"min-p", 0, CFG_FLOAT, "P", "0", 0, 1, NULL, "keep those with P times the likeliest; 0: off"}, \
    {"typical-p", 0, CFG_FLOAT, "P", "1", 0, 1, NULL, "locally typical sampling; 1: off"},          \
    {"top-n-sigma", 0, CFG_FLOAT, "N", "-1", -1, 1000, NULL, "keep logits within N deviations of the best; -1: off"}, \
    {"xtc-probability", 0, CFG_FLOAT, "P", "0", 0, 1, NULL, "exclude top choices with this probability"}, \
    {"xtc-threshold", 0, CFG_FLOAT, "P", "0.1", 0, 1, NULL, "which choices XTC may exclude"},       \
    {"dynatemp-range", 0, CFG_FLOAT, "R", "0", 0, 100, NULL, "temperature moves by R with the entropy; 0: off"}, \
    {"mirostat", 0, CFG_INT, "N", "0", 0, 2, NULL, "mirostat 1 or 2; 0: off"},                      \
    {"mirostat-tau", 0, CFG_FLOAT, "T", "5", 0, 100, NULL, "mirostat's target surprise"},           \
    {"mirostat-eta", 0, CFG_FLOAT, "E", "0.1", 0, 1, NULL, "mirostat's learning rate"},             \
    {"repeat-penalty", 0, CFG_FLOAT, "X", "1", 0.01, 100, NULL, "divide logits of recent tokens; 1: off"}, \
    {"presence-penalty", 0, CFG_FLOAT, "X", "0", -100, 100, NULL, "subtract from logits of recent tokens"}, \
    {"frequency-penalty", 0, CFG_FLOAT, "X", "0", -100, 100, NULL, "the same per occurrence"},      \
    {"penalty-last-n", 0, CFG_INT, "N", "64", -1, 1 << 30, NULL, "how far back penalties look; -1: all"}, \
    {"dry-multiplier", 0, CFG_FLOAT, "X", "0", 0, 100, NULL, "DRY repetition penalty; 0: off (default of dense models below 500 M weights: 0.8)"},     \
    {"dry-base", 0, CFG_FLOAT, "X", "1.75", 1, 100, NULL, "DRY growth per repeated token"},         \
    {"dry-allowed-length", 0, CFG_INT, "N", "2", 0, 1 << 30, NULL, "repeats that DRY lets pass"},   \
    {"ignore-eos", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "go on past the end token"},             \
    {"think-budget", 0, CFG_INT, "N", "-1", -1, 1 << 30, NULL, "thinking ends after N tokens; -1: no limit"}

#define ENGINE_OPTIONS                                                                             \
    {"ctx", 'c', CFG_INT, "N", "0", 0, 1 << 30, NULL, "context in tokens; 0: the model's own, at most 32768, less if memory is short"}, \
    {"fit", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "plan memory first, refuse what does not fit; --no-fit"}, \
    {"batch", 'b', CFG_INT, "N", "0", 0, 65536, NULL, "tokens per forward; 0: 512, on a GPU with room for it 2048"}, \
    {"speculate", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "draft tokens where that is faster; --no-speculate"}, \
    {"draft", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "drafter of the model: a GGUF file, a Hugging Face folder or hf:OWNER/REPO (docs/speculation.md)"}, \
    {"draft-max", 0, CFG_INT, "N", "0", 0, 15, NULL, "drafted tokens at most; 0: 3 of the model, 7 of text"},                     \
    {"draft-head", 0, CFG_INT, "N", "0", 0, 1 << 24, NULL, "rows of the output head that drafts read, in 4 bits; 0: choose; as many as tokens: no copy"}, \
    EXPERT_OPTIONS, \
    {"deterministic", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "same text whatever else runs"},      \
    {"chat-template", 0, CFG_STR, "NAME|FILE", NULL, 0, 0, NULL, "chat template in place of the model's own: chatml, llama3, mistral, gemma, phi3, zephyr, or a Jinja file"}, \
    {"chat-template-kwargs", 0, CFG_STR, "JSON", NULL, 0, 0, NULL, "further variables of the chat template, an object"}, \
    {"lora", 0, CFG_LIST, "FILE[:SCALE]", NULL, 0, 0, NULL, "adapter; may be repeated"}, \
    {"prompt-cache", 0, CFG_BYTES, "SIZE", "1G", 0, 0, NULL, "memory for states that later prompts may begin with; 0: none"}, \
    {"state-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "where those go that memory cannot hold, and all at the end: the next start finds them"}, \
    {"store", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "database for requests, keys, documents and memory in place of chimere.db: postgres://USER:PASSWORD@HOST/NAME, which servers may share"}, \
    {"state-disk", 0, CFG_BYTES, "SIZE", "8G", 0, 0, NULL, "their files together, at most"},      \
    {"state-quota", 0, CFG_BYTES, "SIZE", "2G", 0, 0, NULL, "of those, the files of one API key at most; 0: no limit of its own"}, \
    {"engram-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of n-gram tables (default: the user's own)"}

/* For commands that may run a model with libllama. */
#define LLAMA_OPTIONS                                                                              \
    {"backend", 0, CFG_ENUM, "NAME", "auto", 0, 0, "auto|own|llama", "who runs the model: chimere, or libllama; auto: libllama for architectures that chimere lacks"}, \
    {"gpu-layers", 0, CFG_INT, "N", "-1", -1, 100000, NULL, "layers that libllama puts on GPUs; -1: its own default"}, \
    {"backend-process", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "libllama in a process of its own, so that an abort inside it does not end this one"}, \
    {"mmproj", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "GGUF file that the model sees images with, by libmtmd; implies --backend llama"}, \
    {"llama-library", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "chimere-llama.so (default: the one that was built with chimere)"}

/* For commands that may use several GPUs. */
#define GPUS_OPTIONS                                                                               \
    {"gpus", 0, CFG_STR, "LIST", NULL, 0, 0, NULL, "several GPUs by number, such as 0,1, in place of --device (docs/several-gpus.md)"}, \
    {"split", 0, CFG_ENUM, "HOW", "auto", 0, 0, SPLIT_CHOICES, "how --gpus share the model: replica: each holds it and answers requests of its own; layer: each holds a part of the layers; tensor: each holds a slice of every layer; none: the first alone; auto: replica if each holds the model, else layer"}, \
    {"link", 0, CFG_ENUM, "HOW", "auto", 0, 0, LINK_CHOICES, "how cards exchange results with --split tensor: peer: directly; host: through host memory; auto: the faster way, by a measurement"}

/* For commands whose answers use n-gram tables that the user names. */
#define ENGRAM_OPTIONS                                                                             \
    {"engram", 0, CFG_LIST, "TABLE", NULL, 0, 0, NULL, "n-gram table to mix in and draft with: a name or a file; may be repeated"}, \
    {"engram-alpha", 0, CFG_FLOAT, "A", "1", 0, 100, NULL, "how much the tables weigh: 0 not at all, 1 as fitted"}, \
    {"engram-recall", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "look up what the question names; --no-engram-recall"}
/* clang-format on */

/* Everything that a generating command uses, opened according to its options. */
struct chat_rig {
    struct loaded loaded;           /* owns the objects of the views below */
    struct dev *dev;                /* view */
    struct model *m;                /* view */
    struct tok *tok;                /* view */
    struct chat_template *template; /* view; NULL: the model has none */
    struct engine *engine;          /* view */
    const struct lora_use *loras;   /* view [n_lora] */
    int32_t n_lora;
    int32_t think_start[8], think_end[8]; /* tokens of the model's marks of thinking */
    size_t n_think_start, n_think_end;
    struct engram_store *engram; /* owned; NULL until tables are named */
    struct store *store;         /* owned; NULL without --state-dir and --store */
    /* owned: index of saved states if store is a server; otherwise NULL */
    struct store *index;
    json_t *template_kwargs; /* owned, or NULL */
};

/* Fills the load parameters from the options; p->path is path, p->loras are borrowed from c. n_seq below 0: at
 * most -n_seq. */
int chat_rig_load(const struct cfg *c, int32_t n_seq, struct load_params *p, char *path,
                  size_t path_size, struct err *e);
/* Does the same, except for the model's file. */
void chat_rig_how(const struct cfg *c, int32_t n_seq, struct load_params *p);
/* Returns the text of --chat-template in *text, freed with mem_free, or NULL. */
int chat_rig_template(const struct cfg *c, char **text, struct err *e);
int chat_rig_open(struct chat_rig *r, const struct cfg *c, int32_t n_seq, struct err *e);
void chat_rig_close(struct chat_rig *r);
/* Fills the sampling parameters from the options; they point into r. */
void chat_rig_sampling(const struct chat_rig *r, const struct cfg *c, bool in_think,
                       struct sampler_params *p);
/* Opens the tables of ENGRAM_OPTIONS for one conversation; *out is NULL if none is named. */
int chat_rig_memory(struct chat_rig *r, const struct cfg *c, const json_t *messages,
                    struct ngram_memory **out, struct err *e);
/* Renders and tokenizes a conversation; tools may be NULL. Free *ids with mem_free. */
int chat_rig_encode(const struct chat_rig *r, json_t *messages, json_t *tools, bool think,
                    int32_t **ids, size_t *n, bool *in_think, struct err *e);

#endif
