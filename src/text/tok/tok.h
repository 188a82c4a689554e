/* tok.h: bytes <-> token ids.
 *
 * Hides byte-level BPE, SentencePiece-style (score-driven) BPE, unigram and WordPiece behind one type.
 * Fed plain arrays by model/vocab.c; has never heard of a file format. Immutable once built: any number
 * of threads may encode and decode with their own buffers. Encoding is linear in the text (a heap per
 * word), bounded in memory by a small multiple of it.
 *
 * Text that is not UTF-8 loses nothing with TOK_BPE and TOK_SPM: each byte that belongs to no
 * well-formed character is a word of its own, spelt with the byte's token. TOK_UNIGRAM and
 * TOK_WORDPIECE read such a byte as U+FFFD, as their reference does. */
#ifndef CHIMERE_TEXT_TOK_TOK_H
#define CHIMERE_TEXT_TOK_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* GGUF tokenizer.ggml.model: gpt2 (and gemma4, whitespace), llama, bert, t5. */
enum tok_model { TOK_BPE, TOK_SPM, TOK_WORDPIECE, TOK_UNIGRAM };

/* Values of tokenizer.ggml.token_type. */
enum tok_kind {
    TOK_UNDEFINED,
    TOK_NORMAL,
    TOK_UNKNOWN,
    TOK_CONTROL,
    TOK_USER_DEFINED,
    TOK_UNUSED,
    TOK_BYTE
};

/* White space that a special token swallows when it stands in a text. */
enum tok_strip { TOK_STRIP_LEFT = 1, TOK_STRIP_RIGHT = 2 };

struct tok_spec { /* everything borrowed during tok_new only */
    enum tok_model model;
    /* Pre-tokenizer name of TOK_BPE ("qwen35", "llama-bpe", ...); unknown: refused. */
    const char *pre;
    uint32_t n_vocab;
    const struct slice *pieces; /* [n_vocab] as files store them; byte-level for TOK_BPE */
    const float *scores;        /* [n_vocab], TOK_SPM and TOK_UNIGRAM; may be NULL: all 0 */
    const uint8_t *kinds;       /* [n_vocab] enum tok_kind; may be NULL: all normal */
    const uint8_t *strips;      /* [n_vocab] enum tok_strip bits of special tokens; may be NULL */
    const struct slice *merges; /* [n_merges] "left right"; TOK_BPE */
    uint32_t n_merges;
    int32_t bos, eos, unk, sep, pad, cls, mask, eot; /* -1: none */
    const int32_t *eog; /* [n_eog] further end-of-generation ids; the well-known names are added */
    uint32_t n_eog;
    int add_bos, add_eos;         /* 0, 1, or -1: the model kind's default */
    int add_space_prefix;         /* TOK_SPM and TOK_UNIGRAM; -1: default (1; unigram 0) */
    bool remove_extra_whitespace; /* TOK_UNIGRAM */
    int lowercase, strip_accents; /* TOK_WORDPIECE; 0: as BERT (yes), 1: yes, -1: no */
    struct slice charsmap;        /* TOK_UNIGRAM: precompiled normaliser; empty: none */
};

struct tok;

int tok_new(struct tok **out, const struct tok_spec *spec, struct err *e);
void tok_free(struct tok *t);

/* Text to ids. parse_special: control tokens written out in the text become their ids (never set for
 * text that a user wrote); user-defined tokens always match. add_bos: adds what the model's files ask
 * for at start and end (BOS, EOS, CLS/SEP). *ids (owned by the caller, mem_free) gets *n ids. */
int tok_encode(const struct tok *t, const char *text, size_t n_text, bool parse_special,
               bool add_bos, int32_t **ids, size_t *n, struct err *e);

/* Bytes of one token, a view that lives as long as t; control tokens give their text. Byte tokens give
 * their byte. Out-of-range ids give an empty slice. */
struct slice tok_piece(const struct tok *t, int32_t id);
uint32_t tok_n_vocab(const struct tok *t);
enum tok_kind tok_kind(const struct tok *t, int32_t id);
bool tok_is_eog(const struct tok *t, int32_t id);
int32_t tok_bos(const struct tok *t);
int32_t tok_eos(const struct tok *t);
/* Id of a piece given as plain bytes (e.g. "<|im_end|>"), -1 if none. */
int32_t tok_find(const struct tok *t, const char *piece, size_t n);
unsigned tok_strips(const struct tok *t, int32_t id); /* enum tok_strip bits */
/* Hash over pieces, kinds and merges: names the tokenizer in tables and saved states. */
uint64_t tok_hash(const struct tok *t);

/* Streaming detokenisation: emits whole UTF-8 characters only, holds back an unfinished one, replaces
 * bytes that can never become one by U+FFFD, loses nothing. No allocation. */
struct tok_stream {
    const struct tok *t; /* borrowed */
    bool show_control;   /* control tokens as text; default off */
    bool at_start;       /* the next piece loses the space that encoding put before it */
    unsigned char held[4];
    uint32_t n_held;
};
void tok_stream_init(struct tok_stream *s, const struct tok *t, bool show_control);
/* Bytes of the next token as the stream shows them, before any repair of UTF-8: a view; empty for
 * control tokens that are not shown. Use this or tok_stream_push on one stream, not both. */
struct slice tok_stream_bytes(struct tok_stream *s, int32_t id);
/* Appends the text that id completes; out needs 3 * tok_max_piece_bytes(t) + 16 bytes. Returns bytes written. */
size_t tok_stream_push(struct tok_stream *s, int32_t id, char *out);
size_t tok_stream_flush(struct tok_stream *s, char *out); /* at the end: at most 12 bytes */
size_t tok_max_piece_bytes(const struct tok *t); /* longest piece; size outputs by 3 * this + 16 */

#endif
