/* hf_vocab_impl.h: a checkpoint's vocabulary, between reading its files and writing GGUF. */
#ifndef CHIMERE_CONVERT_HF_VOCAB_IMPL_H
#define CHIMERE_CONVERT_HF_VOCAB_IMPL_H

#include <jansson.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "convert/hf_impl.h"
#include "format/json_scan.h"

/* ---- hf_tokens.c ---- */

enum hf_vocab_model { HF_BPE, HF_SPM, HF_UNIGRAM, HF_WORDPIECE };

struct hf_vocab {
    enum hf_vocab_model model;
    struct slice *pieces; /* owned [n]; text in `text` */
    int32_t *kinds;       /* owned [n]: GGUF token types; 0: no token */
    float *scores;        /* owned [n] */
    uint32_t n, cap;
    struct slice *merges; /* owned [n_merges]: "left right" */
    size_t n_merges, cap_merges;
    struct arena text;
    struct map ids;                                              /* piece -> id */
    json_t *added, *normalizer, *pre_tokenizer, *post_processor; /* owned, may be NULL */
    int64_t unk_id;                                              /* -1: none */
    bool ignore_merges;
    const char *pre; /* static: the pre-tokenizer's name, if the file gives it otherwise; NULL */
    char unk[64];
};

struct hf_reader {
    struct hf_vocab *v;
    const char *path; /* for error messages */
    struct err *e;
};

/* Reports: out of memory, and the scanner's error. */
int hf_no_memory(const struct hf_reader *r);
int hf_bad(const struct hf_reader *r, const struct json_scan *s);
struct hf_wanted {
    const char *name; /* NULL ends a list */
    struct slice *to;
};
/* raw must be one object; stores the raw values of the listed members. */
int hf_collect(const struct hf_reader *r, struct slice raw, const struct hf_wanted *list);
/* Parses a raw value; if it is empty or null, *out is unchanged. */
int hf_load_tree(const struct hf_reader *r, struct slice raw, json_t **out);
void hf_vocab_init(struct hf_vocab *v);
/* Add a token or a merge; the text must be a view of the vocabulary's arena. */
int hf_vocab_put(const struct hf_reader *r, uint64_t id, struct slice text, int32_t kind);
int hf_vocab_merge(const struct hf_reader *r, struct slice left_right);
/* Call hf_vocab_fini in every case. text has a NUL after n bytes; name is for error messages. */
int hf_vocab_read(struct hf_vocab *v, const char *dir, struct err *e);
int hf_vocab_parse(struct hf_vocab *v, const char *text, size_t n, const char *name, struct err *e);
void hf_vocab_fini(struct hf_vocab *v);
int64_t hf_vocab_id(const struct hf_vocab *v, const char *piece, size_t n); /* -1: none */

/* ---- hf_ranked.c ---- */

/* Reads tekken.json or a tiktoken file of the folder; CHIMERE_ENOENT: neither exists. Call
 * hf_vocab_fini in every case. */
int hf_ranked_read(struct hf_vocab *v, const char *dir, struct err *e);
/* The same for a text with a NUL after n bytes; dir contains config.json and tokenizer_config.json. */
int hf_ranked_parse(struct hf_vocab *v, const char *dir, const char *text, size_t n,
                    const char *name, struct err *e);

/* ---- hf_pre.c ---- */

/* The pre-tokenizer's name in GGUF files, or CHIMERE_EUNSUPPORTED. */
int hf_pre_name(const struct hf_vocab *v, const char **name, struct err *e);

/* ---- hf_vocab.c ---- */

int hf_put_vocab(struct hf *h, struct gguf_writer *w, struct err *e);

#endif
