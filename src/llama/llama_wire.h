/* llama_wire.h: messages between the program and the child process that runs libllama. Both run the same program file.
 *
 * The parent sends one message and waits for its reply; log lines of libllama may precede the reply. Logits are written
 * to the shared memory of child.h. Numbers are in the machine's own format. */
#ifndef CHIMERE_LLAMA_LLAMA_WIRE_H
#define CHIMERE_LLAMA_LLAMA_WIRE_H

#include <stdint.h>

enum wire_op {
    WIRE_START,       /* library's path -> name of libllama */
    WIRE_OPEN,        /* struct wire_open, paths -> struct llama_shim_info */
    WIRE_RUN,         /* a items, b adapters: wire_item[a], wire_lora[b], tokens -> a: rows */
    WIRE_REMOVE,      /* a: id, b: from -> a: whether it succeeded */
    WIRE_SHARE,       /* a: id, b: to, c: positions */
    WIRE_STATE_BYTES, /* a: id -> a: bytes */
    WIRE_STATE_SAVE,  /* a: id, b: bytes -> the state */
    WIRE_STATE_LOAD,  /* a: id, the state -> a: bytes */
    WIRE_LORA,        /* path of an adapter */
    WIRE_EMBED,       /* tokens -> a vector */
    WIRE_IMAGE,       /* an image file -> a: tokens, b: rows */
    WIRE_IMAGE_READ,  /* -> ids and rows of that image, which is then freed */
    WIRE_REPLY,       /* rc; if not 0, followed by an error sentence */
    WIRE_LOG          /* a: level; one line of text */
};

struct wire_head {
    uint32_t op;
    int32_t rc;
    uint64_t n_byte; /* bytes that follow the header */
    int64_t a, b, c;
};

struct wire_open {
    int32_t n_gpu_layers, n_thread, n_seq, n_batch, n_out, embeds;
    int32_t n_path; /* length of the path including its zero byte; the path of mmproj follows */
    int32_t unused;
    int64_t n_ctx;
    uint32_t k_type, v_type;
};

struct wire_item {
    int64_t pos;
    int32_t seq, n_tok, all, last;
    int32_t is_rows, is_whole; /* is_rows: rows replace the tokens */
};

struct wire_lora {
    int32_t index;
    float scale;
};

enum { WIRE_MAX_BYTES = 64 << 20 }; /* of a message; states are not limited */

#endif
