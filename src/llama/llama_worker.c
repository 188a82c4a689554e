/* llama_worker.c: the child process that has loaded libllama: reads messages, calls the functions, replies. */
#include <stdio.h>
#include <string.h>

#include "base/os/child.h"
#include "base/mem.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"
#include "llama/llama_wire.h"

struct worker {
    struct child parent;
    const struct llama_shim *shim;
    struct shim_model *m;
    struct llama_shim_info info;
    int32_t n_out;
    struct shim_lora *loras[LLAMA_SHIM_MAX_LORAS];
    int32_t n_lora;
    struct shim_image *image; /* owned: encoded and not read yet; NULL: none */
    struct llama_shim_image image_info;
    unsigned char *data; /* owned: data of the message, followed by a zero byte */
    size_t n;
    char text[LLAMA_SHIM_TEXT];
};

static struct worker worker; /* global, because libllama's log callback has no argument for it */

static void send_log(int level, const char *line) {
    size_t n = strlen(line);
    if (n > 255) n = 255;
    struct wire_head h = {.op = WIRE_LOG, .n_byte = n, .a = level == 2 ? 0 : level};
    if (child_write(&worker.parent, &h, sizeof h)) child_write(&worker.parent, line, n);
}

/* Sends a reply. rc 0: n bytes of data; otherwise the error sentence. */
static bool reply(struct worker *w, int rc, int64_t a, const void *data, size_t n) {
    struct wire_head h = {.op = WIRE_REPLY,
                          .rc = rc,
                          .n_byte = rc ? sizeof w->text : n,
                          .a = rc ? 0 : a,
                          .b = w->image_info.n_row};
    if (!child_write(&w->parent, &h, sizeof h)) return false;
    return rc ? child_write(&w->parent, w->text, sizeof w->text) : child_write(&w->parent, data, n);
}

static int refuse(struct worker *w, int code, const char *text) {
    snprintf(w->text, sizeof w->text, "%s", text);
    return code;
}

static bool start(struct worker *w) {
    struct err e = {0};
    char name[128] = "";
    int rc = llama_lib_open(&w->shim, (const char *)w->data, send_log, &e);
    if (rc) refuse(w, rc, e.text);
    else snprintf(name, sizeof name, "%s", w->shim->library());
    return reply(w, rc, 0, name, sizeof name);
}

static bool open_model(struct worker *w) {
    struct wire_open o;
    if (!w->shim || w->m || w->n < sizeof o) return false;
    memcpy(&o, w->data, sizeof o);
    if (o.n_path < 1 || (size_t)o.n_path > w->n - sizeof o) return false;
    const char *path = (const char *)w->data + sizeof o;
    const struct llama_shim_params p = {.path = path,
                                        .mmproj = path[o.n_path] ? path + o.n_path : NULL,
                                        .n_gpu_layers = o.n_gpu_layers,
                                        .n_thread = o.n_thread,
                                        .n_ctx = o.n_ctx,
                                        .n_seq = o.n_seq,
                                        .n_batch = o.n_batch,
                                        .n_out = o.n_out,
                                        .k_type = o.k_type,
                                        .v_type = o.v_type,
                                        .embeds = o.embeds != 0};
    w->n_out = o.n_out;
    int rc = w->shim->open(&w->m, &p, &w->info, w->text);
    return reply(w, rc, 0, &w->info, sizeof w->info);
}

/* Reads items and tokens from the message. NULL: their sizes are not consistent. */
static struct llama_shim_item *take_items(const struct worker *w, int64_t n, int64_t n_lora) {
    size_t head = (size_t)n * sizeof(struct wire_item) + (size_t)n_lora * sizeof(struct wire_lora);
    if (n < 1 || n > 1 << 16 || n_lora < 0 || n_lora > w->n_lora || head > w->n) return NULL;
    struct llama_shim_item *items = mem_alloc_array((size_t)n, sizeof *items);
    size_t at = head;
    for (int64_t i = 0; items && i < n; i++) {
        struct wire_item x;
        memcpy(&x, w->data + (size_t)i * sizeof x, sizeof x);
        size_t n_byte = x.n_tok < 1 ? 0
                                    : (size_t)x.n_tok * sizeof(int32_t) *
                                          (x.is_rows ? (size_t)w->info.n_row_embd : 1);
        if (!n_byte || n_byte > w->n - at) {
            mem_free(items);
            return NULL;
        }
        items[i] = (struct llama_shim_item){
            .seq = x.seq,
            .n_tok = x.n_tok,
            .pos = x.pos,
            .tokens = (const int32_t *)(void *)(w->data + at),
            .rows = x.is_rows ? (const float *)(void *)(w->data + at) : NULL,
            .is_whole = x.is_whole != 0,
            .all = x.all != 0,
            .last = x.last != 0};
        at += n_byte;
    }
    return items;
}

/* Writes the logits to the shared memory; the parent has already set its size. */
static int run_items(struct worker *w, const struct llama_shim_item *items, int32_t n,
                     int32_t n_lora) {
    struct llama_shim_lora loras[LLAMA_SHIM_MAX_LORAS];
    struct err e = {0};
    size_t width = (size_t)w->info.n_vocab * sizeof(float), n_row = 0;
    for (int32_t i = 0; i < n_lora; i++) {
        struct wire_lora x;
        memcpy(&x, w->data + (size_t)n * sizeof(struct wire_item) + (size_t)i * sizeof x, sizeof x);
        if (x.index < 0 || x.index >= w->n_lora)
            return refuse(w, CHIMERE_EINVAL, "lora: no such adapter");
        loras[i] = (struct llama_shim_lora){w->loras[x.index], x.scale};
    }
    for (int32_t i = 0; i < n; i++)
        n_row += (size_t)(items[i].all ? items[i].n_tok : items[i].last);
    if (n_row > (size_t)w->n_out) return refuse(w, CHIMERE_ELIMIT, "too many rows of logits");
    if (!w->parent.map && child_share(&w->parent, (size_t)w->n_out * width, &e))
        return refuse(w, e.code, e.text);
    const float *logits;
    int rc = w->shim->run(w->m, items, n, loras, n_lora, &logits, w->text);
    if (!rc && n_row) memcpy(w->parent.map, logits, n_row * width);
    return rc;
}

static bool run(struct worker *w, const struct wire_head *h) {
    struct llama_shim_item *items = w->m ? take_items(w, h->a, h->b) : NULL;
    if (!items) return false;
    int rc = run_items(w, items, (int32_t)h->a, (int32_t)h->b);
    mem_free(items);
    return reply(w, rc, 0, NULL, 0);
}

static bool save_state(struct worker *w, const struct wire_head *h) {
    size_t n = (size_t)h->b;
    void *data = mem_alloc(n + 1);
    int rc = data ? 0 : refuse(w, CHIMERE_ENOMEM, "out of memory");
    if (!rc && w->shim->state_save(w->m, (int32_t)h->a, data, n) != n)
        rc = refuse(w, CHIMERE_EDEVICE, "libllama fails to save a state");
    bool ok = reply(w, rc, (int64_t)n, data, n);
    mem_free(data);
    return ok;
}

static bool open_lora(struct worker *w) {
    int rc = w->n_lora < LLAMA_SHIM_MAX_LORAS ? 0 : refuse(w, CHIMERE_ELIMIT, "too many adapters");
    if (!rc) rc = w->shim->lora_open(w->m, (const char *)w->data, &w->loras[w->n_lora], w->text);
    if (!rc) w->n_lora++;
    return reply(w, rc, 0, NULL, 0);
}

static bool embed(struct worker *w) {
    size_t n = (size_t)w->info.n_embd * sizeof(float);
    float *out = mem_alloc(n);
    int rc = out ? w->shim->embed(w->m, (const int32_t *)(void *)w->data,
                                  (int32_t)(w->n / sizeof(int32_t)), out, w->text)
                 : refuse(w, CHIMERE_ENOMEM, "out of memory");
    bool ok = reply(w, rc, 0, out, n);
    mem_free(out);
    return ok;
}

static bool open_image(struct worker *w) {
    if (w->image) w->shim->image_close(w->image);
    w->image = NULL;
    w->image_info = (struct llama_shim_image){0, 0};
    int rc = w->shim->image_open
                 ? w->shim->image_open(w->m, w->data, w->n, &w->image, &w->image_info, w->text)
                 : refuse(w, CHIMERE_EUNSUPPORTED, "built without libmtmd");
    return reply(w, rc, w->image_info.n_tok, NULL, 0);
}

static bool read_image(struct worker *w) {
    size_t n_id = (size_t)w->image_info.n_tok * sizeof(int32_t);
    size_t n = n_id + (size_t)w->image_info.n_row * (size_t)w->info.n_row_embd * sizeof(float);
    unsigned char *data = w->image ? mem_alloc(n) : NULL;
    if (!w->image) return false;
    if (data)
        w->shim->image_read(w->image, (int32_t *)(void *)data, (float *)(void *)(data + n_id));
    int rc = data ? 0 : refuse(w, CHIMERE_ENOMEM, "out of memory");
    bool ok = reply(w, rc, 0, data, n);
    mem_free(data);
    w->shim->image_close(w->image);
    w->image = NULL;
    return ok;
}

/* Handles one message. Returns false if the parent has ended, or the message is invalid. */
static bool serve(struct worker *w, const struct wire_head *h) {
    int32_t id = (int32_t)h->a;
    if (h->op == WIRE_START) return start(w);
    if (h->op == WIRE_OPEN) return open_model(w);
    if (!w->m) return false;
    switch (h->op) {
    case WIRE_RUN: return run(w, h);
    case WIRE_REMOVE: return reply(w, 0, w->shim->seq_remove(w->m, id, h->b), NULL, 0);
    case WIRE_SHARE:
        w->shim->seq_share(w->m, id, (int32_t)h->b, h->c);
        return reply(w, 0, 0, NULL, 0);
    case WIRE_STATE_BYTES: return reply(w, 0, (int64_t)w->shim->state_bytes(w->m, id), NULL, 0);
    case WIRE_STATE_SAVE: return save_state(w, h);
    case WIRE_STATE_LOAD:
        return reply(w, 0, (int64_t)w->shim->state_load(w->m, id, w->data, w->n), NULL, 0);
    case WIRE_LORA: return open_lora(w);
    case WIRE_EMBED: return embed(w);
    case WIRE_IMAGE: return open_image(w);
    case WIRE_IMAGE_READ: return read_image(w);
    default: return false;
    }
}

int llama_worker(void) {
    struct worker *w = &worker;
    struct wire_head h;
    child_self(&w->parent);
    while (child_read(&w->parent, &h, sizeof h)) {
        if (h.op != WIRE_STATE_LOAD && h.n_byte > WIRE_MAX_BYTES) break;
        w->n = (size_t)h.n_byte;
        w->data = mem_alloc(w->n + 1);
        bool ok = w->data && child_read(&w->parent, w->data, w->n);
        if (ok) {
            w->data[w->n] = 0;
            ok = serve(w, &h);
        }
        mem_free(w->data);
        if (!ok) break;
    }
    if (w->m) w->shim->close(w->m);
    child_end(&w->parent, NULL, 0);
    return 0;
}
