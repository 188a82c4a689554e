/* llama_wire.h: messages between the program and the process that runs libllama for it. Both are this program's file.
 *
 * The parent sends one message and waits for its reply; lines of libllama's log may come before the reply. Logits are
 * left in the shared memory of child.h. Numbers are the machine's own. */
#ifndef CHIMERE_LLAMA_LLAMA_WIRE_H
#define CHIMERE_LLAMA_LLAMA_WIRE_H

#include <stdint.h>

enum wire_op {
    WIRE_START,       /* library's path -> name of libllama */
    WIRE_OPEN,        /* struct wire_open, paths -> struct llama_shim_info */
    WIRE_RUN,         /* a items, b adapters: wire_item[a], wire_lora[b], tokens -> a: rows */
    WIRE_REMOVE,      /* a: id, b: from -> a: whether */
    WIRE_SHARE,       /* a: id, b: to, c: positions */
    WIRE_STATE_BYTES, /* a: id -> a: bytes */
    WIRE_STATE_SAVE,  /* a: id, b: bytes -> the state */
    WIRE_STATE_LOAD,  /* a: id, the state -> a: bytes */
    WIRE_LORA,        /* path */
    WIRE_EMBED,       /* tokens -> numbers */
    WIRE_IMAGE,       /* a file -> a: tokens, b: rows */
    WIRE_IMAGE_READ,  /* -> the ids and rows of that image, which is then forgotten */
    WIRE_REPLY,       /* rc; if it is not 0 a sentence */
    WIRE_LOG          /* a: level, a line */
};

struct wire_head {
    uint32_t op;
    int32_t rc;
    uint64_t n_byte; /* that follow */
    int64_t a, b, c;
};

struct wire_open {
    int32_t n_gpu_layers, n_thread, n_seq, n_batch, n_out, embeds;
    int32_t n_path; /* bytes of the path with its zero; what libmtmd sees with comes after it */
    int32_t unused;
    int64_t n_ctx;
    uint32_t k_type, v_type;
};

struct wire_item {
    int64_t pos;
    int32_t seq, n_tok, all, last;
    int32_t is_rows, is_whole; /* rows follow in place of tokens */
};

struct wire_lora {
    int32_t index;
    float scale;
};

enum { WIRE_MAX_BYTES = 64 << 20 }; /* of a message but states, which are as large as they are */

#endif
