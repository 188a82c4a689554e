/* tok.h: converts bytes to token ids and back.
 *
 * Hides byte-level BPE, SentencePiece-style (score-driven) BPE, unigram and WordPiece in one type.
 * model/vocab.c passes plain arrays, so this module does not depend on a file format. Immutable once built: any
 * number of threads may encode and decode with their own buffers. Encoding takes time linear in the text (a heap
 * per word) and memory of at most a small multiple of it.
 *
 * Text that is not UTF-8 is encoded without loss by TOK_BPE and TOK_SPM: each byte outside of a well-formed
 * character is a separate word, encoded as the byte's token. TOK_UNIGRAM and TOK_WORDPIECE read such a byte as
 * U+FFFD, as their reference implementations do. */
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

/* White space that a special token removes next to it in a text. */
enum tok_strip { TOK_STRIP_LEFT = 1, TOK_STRIP_RIGHT = 2 };

struct tok_spec { /* all members are borrowed during tok_new only */
    enum tok_model model;
    /* Pre-tokenizer name for TOK_BPE ("qwen35", "llama-bpe", ...); an unknown name is refused. */
    const char *pre;
    uint32_t n_vocab;
    const struct slice *pieces; /* [n_vocab] as stored in files; byte-level for TOK_BPE */
    const float *scores;        /* [n_vocab], TOK_SPM and TOK_UNIGRAM; may be NULL: all 0 */
    const uint8_t *kinds;       /* [n_vocab] enum tok_kind; may be NULL: all normal */
    const uint8_t *strips;      /* [n_vocab] enum tok_strip bits of special tokens; may be NULL */
    const struct slice *merges; /* [n_merges] "left right"; TOK_BPE */
    uint32_t n_merges;
    int32_t bos, eos, unk, sep, pad, cls, mask, eot; /* -1: none */
    const int32_t *eog; /* [n_eog] more end-of-generation ids; the well-known names are added */
    uint32_t n_eog;
    int add_bos, add_eos;         /* 0, 1, or -1: default of the model kind */
    int add_space_prefix;         /* TOK_SPM and TOK_UNIGRAM; -1: default (1; unigram 0) */
    bool remove_extra_whitespace; /* TOK_UNIGRAM: squeeze white space */
    int lowercase, strip_accents; /* TOK_WORDPIECE; 0: as in BERT (yes), 1: yes, -1: no */
    struct slice charsmap;        /* TOK_UNIGRAM: precompiled normaliser; empty: none */
};

struct tok;

int tok_new(struct tok **out, const struct tok_spec *spec, struct err *e);
void tok_free(struct tok *t);

/* Encodes text. parse_special: control tokens written in the text become their ids (never set it for text that a
 * user wrote); user-defined tokens always match. add_bos: adds what the model's files request at start and end
 * (BOS, EOS, CLS/SEP). *ids gets *n ids; the caller frees it with mem_free. */
int tok_encode(const struct tok *t, const char *text, size_t n_text, bool parse_special,
               bool add_bos, int32_t **ids, size_t *n, struct err *e);

/* Returns the bytes of one token, a view that lives as long as t. Control tokens give their text, byte tokens give
 * their byte. An id out of range gives an empty slice. */
struct slice tok_piece(const struct tok *t, int32_t id);
uint32_t tok_n_vocab(const struct tok *t);
enum tok_kind tok_kind(const struct tok *t, int32_t id);
bool tok_is_eog(const struct tok *t, int32_t id);
int32_t tok_bos(const struct tok *t);
int32_t tok_eos(const struct tok *t);
/* Returns the id of a piece given as plain bytes (e.g. "<|im_end|>"), -1 if there is none. */
int32_t tok_find(const struct tok *t, const char *piece, size_t n);
unsigned tok_strips(const struct tok *t, int32_t id); /* enum tok_strip bits */
/* Returns a hash over pieces, kinds and merges, which identifies the tokenizer in tables and saved states. */
uint64_t tok_hash(const struct tok *t);

/* Streaming detokenization: emits only whole UTF-8 characters, holds back an incomplete one, and replaces bytes
 * that cannot become one by U+FFFD. Nothing is lost. Does not allocate. */
struct tok_stream {
    const struct tok *t; /* borrowed */
    bool show_control;   /* show control tokens as text; default off */
    bool at_start;       /* the next piece drops the space that encoding put before it */
    unsigned char held[4];
    uint32_t n_held;
};
void tok_stream_init(struct tok_stream *s, const struct tok *t, bool show_control);
/* Returns the bytes of the next token as the stream shows them, before UTF-8 is repaired: a view; empty for
 * control tokens that are not shown. Use either this or tok_stream_push on a stream. */
struct slice tok_stream_bytes(struct tok_stream *s, int32_t id);
/* Writes the text that id completes; out needs 3 * tok_max_piece_bytes(t) + 16 bytes. Returns the number of bytes. */
size_t tok_stream_push(struct tok_stream *s, int32_t id, char *out);
/* at the end of the text; writes at most 12 bytes */
size_t tok_stream_flush(struct tok_stream *s, char *out);
/* longest piece; outputs need 3 * this + 16 bytes */
size_t tok_max_piece_bytes(const struct tok *t);

#endif
