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
    {"temp", 0, CFG_FLOAT, "T", "0.7", 0, 100, NULL, "temperature; 0: always the most likely token (default of dense models below 500 M weights: 0.3)"}, \
    {"seed", 's', CFG_INT, "N", NULL, 0, 9007199254740992.0, NULL, "random seed (default: a new one)"}, \
    {"top-k", 0, CFG_INT, "N", "20", 0, 1 << 30, NULL, "keep the N most likely tokens; 0: off"},             \
    {"top-p", 0, CFG_FLOAT, "P", "0.8", 0, 1, NULL, "keep the most likely tokens that together have probability P; 1: off"},   \
    {"min-p", 0, CFG_FLOAT, "P", "0", 0, 1, NULL, "keep tokens with at least P times the probability of the most likely; 0: off"}, \
    {"typical-p", 0, CFG_FLOAT, "P", "1", 0, 1, NULL, "locally typical sampling; 1: off"},          \
    {"top-n-sigma", 0, CFG_FLOAT, "N", "-1", -1, 1000, NULL, "keep logits within N standard deviations of the maximum; -1: off"}, \
    {"xtc-probability", 0, CFG_FLOAT, "P", "0", 0, 1, NULL, "probability of excluding the most likely tokens (XTC); 0: off"}, \
    {"xtc-threshold", 0, CFG_FLOAT, "P", "0.1", 0, 1, NULL, "probability above which XTC may exclude a token"},       \
    {"dynatemp-range", 0, CFG_FLOAT, "R", "0", 0, 100, NULL, "vary the temperature by up to R with the entropy; 0: off"}, \
    {"mirostat", 0, CFG_INT, "N", "0", 0, 2, NULL, "mirostat version, 1 or 2; 0: off"},                      \
    {"mirostat-tau", 0, CFG_FLOAT, "T", "5", 0, 100, NULL, "mirostat's target surprise"},           \
    {"mirostat-eta", 0, CFG_FLOAT, "E", "0.1", 0, 1, NULL, "mirostat's learning rate"},             \
    {"repeat-penalty", 0, CFG_FLOAT, "X", "1", 0.01, 100, NULL, "divisor of the logits of recent tokens; 1: off"}, \
    {"presence-penalty", 0, CFG_FLOAT, "X", "0", -100, 100, NULL, "value subtracted from the logits of recent tokens; 0: off"}, \
    {"frequency-penalty", 0, CFG_FLOAT, "X", "0", -100, 100, NULL, "value subtracted per occurrence of a recent token; 0: off"},      \
    {"penalty-last-n", 0, CFG_INT, "N", "64", -1, 1 << 30, NULL, "number of recent tokens that penalties consider; -1: all"}, \
    {"dry-multiplier", 0, CFG_FLOAT, "X", "0", 0, 100, NULL, "DRY repetition penalty; 0: off (default of dense models below 500 M weights: 0.8)"},     \
    {"dry-base", 0, CFG_FLOAT, "X", "1.75", 1, 100, NULL, "growth of the DRY penalty per repeated token"},         \
    {"dry-allowed-length", 0, CFG_INT, "N", "2", 0, 1 << 30, NULL, "length of a repetition that DRY does not penalize"},   \
    {"ignore-eos", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "continue past the end token"},             \
    {"think-budget", 0, CFG_INT, "N", "-1", -1, 1 << 30, NULL, "maximum number of thinking tokens; -1: no limit"}

#define ENGINE_OPTIONS                                                                             \
    {"ctx", 'c', CFG_INT, "N", "0", 0, 1 << 30, NULL, "context in tokens; 0: the model's own, at most 32768, less if memory is short"}, \
    {"fit", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "plan memory first and refuse what does not fit; --no-fit: load without a plan"}, \
    {"batch", 'b', CFG_INT, "N", "0", 0, 65536, NULL, "tokens per forward pass; 0: 512, or 2048 on a GPU with room for it"}, \
    {"speculate", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "draft tokens if that is faster; --no-speculate"}, \
    {"draft", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "drafter of the model: a GGUF file, a Hugging Face folder or hf:OWNER/REPO (docs/speculation.md)"}, \
    {"draft-max", 0, CFG_INT, "N", "0", 0, 15, NULL, "maximum number of drafted tokens; 0: 3 from the model, 7 from text"},                     \
    {"draft-head", 0, CFG_INT, "N", "0", 0, 1 << 24, NULL, "rows of the 4-bit copy of the output head for drafts; 0: automatic; the size of the vocabulary: no copy"}, \
    EXPERT_OPTIONS, \
    {"deterministic", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "generate the same text whatever other requests run"},      \
    {"chat-template", 0, CFG_STR, "NAME|FILE", NULL, 0, 0, NULL, "chat template instead of the model's own: chatml, llama3, mistral, gemma, phi3, zephyr, or a Jinja file"}, \
    {"chat-template-kwargs", 0, CFG_STR, "JSON", NULL, 0, 0, NULL, "additional variables for the chat template, a JSON object"}, \
    {"lora", 0, CFG_LIST, "FILE[:SCALE]", NULL, 0, 0, NULL, "LoRA adapter and its scale; may be repeated"}, \
    {"prompt-cache", 0, CFG_BYTES, "SIZE", "1G", 0, 0, NULL, "prompt cache size in memory: states of earlier prompts that later prompts can continue; 0: none"}, \
    {"state-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder for states that do not fit into memory and, at exit, for all of them; the next start reads them"}, \
    {"store", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "database for requests, keys, documents and memory instead of chimere.db: postgres://USER:PASSWORD@HOST/NAME, which servers may share"}, \
    {"state-disk", 0, CFG_BYTES, "SIZE", "8G", 0, 0, NULL, "maximum size of the states on disk"},      \
    {"state-quota", 0, CFG_BYTES, "SIZE", "2G", 0, 0, NULL, "maximum size of the states of one API key on disk; 0: no separate limit"}, \
    {"engram-dir", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of n-gram tables (default: engram in the user's data directory)"}

/* For commands that may run a model with libllama. */
#define LLAMA_OPTIONS                                                                              \
    {"backend", 0, CFG_ENUM, "NAME", "auto", 0, 0, "auto|own|llama", "engine that runs the model: own (Chimère) or llama (libllama); auto: libllama for architectures that Chimère does not implement"}, \
    {"gpu-layers", 0, CFG_INT, "N", "-1", -1, 100000, NULL, "number of layers that libllama puts on GPUs; -1: its own default"}, \
    {"backend-process", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "run libllama in a separate process, so that an abort inside it does not end this one"}, \
    {"mmproj", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "GGUF file of the image encoder, run by libmtmd; implies --backend llama"}, \
    {"llama-library", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "path of chimere-llama.so (default: the one built with chimere)"}

/* For commands that may use several GPUs. */
#define GPUS_OPTIONS                                                                               \
    {"gpus", 0, CFG_STR, "LIST", NULL, 0, 0, NULL, "several GPUs by number, such as 0,1, instead of --device (docs/several-gpus.md)"}, \
    {"split", 0, CFG_ENUM, "HOW", "auto", 0, 0, SPLIT_CHOICES, "how --gpus share the model: replica: each holds a full copy and answers its own requests; layer: each holds a part of the layers; tensor: each holds a slice of every layer; none: only the first is used; auto: replica if each can hold the model, else layer"}, \
    {"link", 0, CFG_ENUM, "HOW", "auto", 0, 0, LINK_CHOICES, "how GPUs exchange results with --split tensor: peer: directly; host: through host memory; auto: the faster way, by a measurement"}

/* For commands whose answers use n-gram tables that the user names. */
#define ENGRAM_OPTIONS                                                                             \
    {"engram", 0, CFG_LIST, "TABLE", NULL, 0, 0, NULL, "n-gram table to mix into predictions and to draft from: a name or a file; may be repeated"}, \
    {"engram-alpha", 0, CFG_FLOAT, "A", "1", 0, 100, NULL, "weight of the tables; 0: none, 1: as fitted"}, \
    {"engram-recall", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "retrieve facts about what the question names; --no-engram-recall"}
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
