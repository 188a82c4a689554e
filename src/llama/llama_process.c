/* llama_process.c: the parent's side. */
#include "llama/llama_process.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/os/child.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "llama/llama_lib.h"
#include "llama/llama_wire.h"

enum {
    MAX_VOCAB = 1 << 24,
    MAX_ROW_EMBD = 1 << 20,
    MAX_ROWS = 1 << 12,
    MAX_IMAGE_TOKENS = 1 << 20
};

struct shim_image {
    int32_t *ids; /* owned: ids, followed by the rows */
    size_t n_id, n_row_byte;
};

struct shim_model {
    pthread_mutex_t lock; /* allows one message at a time; guards all fields below */
    struct child child;
    bool is_dead;
    char path[4096], mmproj[4096];
    struct llama_shim_params p; /* its path and mmproj are the fields above */
    struct llama_shim_info info;
    char *loras[LLAMA_SHIM_MAX_LORAS]; /* owned: paths */
    int32_t n_lora;
    uint32_t epoch;
    char last_error[256];   /* last error line of libllama's log */
    unsigned char *message; /* owned [cap]: buffer for the message of run */
    size_t cap;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two variables below */
static char library_path[4096];
static char library_name[128];

static int fail(char *text, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *text, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, LLAMA_SHIM_TEXT, fmt, args);
    va_end(args);
    return code;
}

/* ---- one message and its reply ---- */

struct part {
    const void *data;
    size_t n;
};

static int died(struct shim_model *m, char *text) {
    char how[96];
    child_end(&m->child, how, sizeof how);
    m->is_dead = true;
    log_warn("libllama's process %s%s%s", how, m->last_error[0] ? ": " : "", m->last_error);
    return fail(text, CHIMERE_EDEVICE, "libllama's process %s%s%s; it is started again", how,
                m->last_error[0] ? ": " : "", m->last_error);
}

static bool take_log(struct shim_model *m, const struct wire_head *h) {
    char line[256] = "";
    if (h->n_byte >= sizeof line || !child_read(&m->child, line, (size_t)h->n_byte)) return false;
    if (h->a == 0) memcpy(m->last_error, line, sizeof line);
    log_debug("libllama: %s", line);
    return true;
}

static bool send_message(struct shim_model *m, const struct wire_head *h, const struct part *parts,
                         int n_part) {
    bool ok = child_write(&m->child, h, sizeof *h);
    for (int i = 0; ok && i < n_part; i++) ok = child_write(&m->child, parts[i].data, parts[i].n);
    return ok;
}

/* *h: in: header of the message; out: header of the reply. out [n_out]: data of the reply, exactly this size. */
static int call(struct shim_model *m, struct wire_head *h, const struct part *parts, int n_part,
                void *out, size_t n_out, char *text) {
    h->n_byte = 0;
    for (int i = 0; i < n_part; i++) h->n_byte += parts[i].n;
    m->last_error[0] = 0;
    if (!send_message(m, h, parts, n_part)) return died(m, text);
    do {
        if (!child_read(&m->child, h, sizeof *h)) return died(m, text);
        if (h->op == WIRE_LOG && !take_log(m, h)) return died(m, text);
    } while (h->op == WIRE_LOG);
    if (h->op != WIRE_REPLY || h->n_byte != (h->rc ? LLAMA_SHIM_TEXT : n_out)) return died(m, text);
    if (!child_read(&m->child, h->rc ? text : out, (size_t)h->n_byte)) return died(m, text);
    if (h->rc) text[LLAMA_SHIM_TEXT - 1] = 0;
    return h->rc;
}

/* ---- start and restart ---- */

static int open_child(struct shim_model *m, char *text) {
    const struct llama_shim_params *p = &m->p;
    const struct wire_open open = {.n_path = (int32_t)strlen(m->path) + 1,
                                   .n_gpu_layers = p->n_gpu_layers,
                                   .n_thread = p->n_thread,
                                   .n_seq = p->n_seq,
                                   .n_batch = p->n_batch,
                                   .n_out = p->n_out,
                                   .embeds = p->embeds,
                                   .n_ctx = p->n_ctx,
                                   .k_type = p->k_type,
                                   .v_type = p->v_type};
    const struct part parts[] = {
        {&open, sizeof open}, {m->path, strlen(m->path) + 1}, {m->mmproj, strlen(m->mmproj)}};
    const struct part library = {library_path, strlen(library_path)};
    struct wire_head h = {.op = WIRE_START};
    char name[sizeof library_name] = "";
    int rc = call(m, &h, &library, 1, name, sizeof name, text);
    if (rc) return rc;
    pthread_mutex_lock(&lock);
    snprintf(library_name, sizeof library_name, "%.*s", (int)sizeof name - 1, name);
    pthread_mutex_unlock(&lock);
    h = (struct wire_head){.op = WIRE_OPEN};
    rc = call(m, &h, parts, 3, &m->info, sizeof m->info, text);
    m->info.about[sizeof m->info.about - 1] = 0;
    if (!rc && (m->info.n_vocab < 1 || m->info.n_vocab > MAX_VOCAB || m->info.n_embd < 1))
        rc = fail(text, CHIMERE_EFORMAT, "libllama reports %d tokens", m->info.n_vocab);
    if (!rc && (m->info.n_row_embd < 0 || m->info.n_row_embd > MAX_ROW_EMBD ||
                m->info.n_row_max < 0 || m->info.n_row_max > MAX_ROWS))
        rc = fail(text, CHIMERE_EFORMAT, "libmtmd reports rows of %d numbers", m->info.n_row_embd);
    return rc;
}

static int start(struct shim_model *m, char *text) {
    struct err e = {0};
    int rc = child_start(&m->child, LLAMA_WORKER_COMMAND, &e);
    m->is_dead = rc != 0;
    if (!rc) rc = open_child(m, text);
    else fail(text, rc, "%s", e.text);
    size_t rows = (size_t)m->p.n_out * (size_t)m->info.n_vocab * sizeof(float);
    if (!rc && !m->p.embeds && (rc = child_share(&m->child, rows, &e)))
        fail(text, rc, "%s", e.text);
    if (rc && !m->is_dead) {
        child_end(&m->child, NULL, 0);
        m->is_dead = true;
    }
    return rc;
}

static int send_lora(struct shim_model *m, const char *path, char *text) {
    struct wire_head h = {.op = WIRE_LORA};
    const struct part part = {path, strlen(path)};
    return call(m, &h, &part, 1, NULL, 0, text);
}

static int start_again(struct shim_model *m, char *text) {
    int rc = start(m, text);
    m->epoch++;
    for (int32_t i = 0; !rc && i < m->n_lora; i++) rc = send_lora(m, m->loras[i], text);
    if (!rc) log_warn("libllama's process is started again");
    return rc;
}

static void process_close(struct shim_model *m) {
    if (!m) return;
    if (!m->is_dead) child_end(&m->child, NULL, 0);
    for (int32_t i = 0; i < m->n_lora; i++) mem_free(m->loras[i]);
    pthread_mutex_destroy(&m->lock);
    mem_free(m->message);
    mem_free(m);
}

static int process_open_model(struct shim_model **out, const struct llama_shim_params *p,
                              struct llama_shim_info *info, char *text) {
    *out = NULL;
    struct shim_model *m = mem_zalloc(sizeof *m);
    if (!m) return fail(text, CHIMERE_ENOMEM, "out of memory");
    m->p = *p;
    m->is_dead = true;
    pthread_mutex_init(&m->lock, NULL);
    int rc = 0;
    if ((size_t)snprintf(m->path, sizeof m->path, "%s", p->path) >= sizeof m->path ||
        (size_t)snprintf(m->mmproj, sizeof m->mmproj, "%s", p->mmproj ? p->mmproj : "") >=
            sizeof m->mmproj)
        rc = fail(text, CHIMERE_ELIMIT, "the path is too long");
    if (!rc) rc = start(m, text);
    m->cap = (size_t)p->n_seq * sizeof(struct wire_item) +
             LLAMA_SHIM_MAX_LORAS * sizeof(struct wire_lora) +
             (size_t)p->n_batch * sizeof(int32_t) +
             (size_t)m->info.n_row_max * (size_t)m->info.n_row_embd * sizeof(float);
    m->message = rc ? NULL : mem_alloc(m->cap); /* so that a step does not allocate */
    if (!rc && !m->message) rc = fail(text, CHIMERE_ENOMEM, "out of memory");
    *info = m->info;
    if (rc) process_close(m);
    else *out = m;
    return rc;
}

/* ---- running ---- */

static bool put(unsigned char *to, size_t cap, size_t *at, const void *data, size_t n) {
    if (n > cap - *at) return false;
    if (n) memcpy(to + *at, data, n);
    *at += n;
    return true;
}

static bool put_items(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
                      const struct llama_shim_lora *loras, int32_t n_lora, size_t *at) {
    bool ok = true;
    for (int32_t i = 0; ok && i < n; i++) {
        const struct wire_item w = {.pos = items[i].pos,
                                    .seq = items[i].seq,
                                    .n_tok = items[i].n_tok,
                                    .all = items[i].all,
                                    .last = items[i].last,
                                    .is_rows = items[i].rows != NULL,
                                    .is_whole = items[i].is_whole};
        ok = put(m->message, m->cap, at, &w, sizeof w);
    }
    for (int32_t i = 0; ok && i < n_lora; i++) {
        const struct wire_lora w = {.index = (int32_t)((intptr_t)loras[i].lora - 1),
                                    .scale = loras[i].scale};
        ok = put(m->message, m->cap, at, &w, sizeof w);
    }
    for (int32_t i = 0; ok && i < n; i++) {
        size_t n_tok = (size_t)items[i].n_tok;
        ok = items[i].rows ? put(m->message, m->cap, at, items[i].rows,
                                 n_tok * (size_t)m->info.n_row_embd * sizeof(float))
                           : put(m->message, m->cap, at, items[i].tokens, n_tok * sizeof(int32_t));
    }
    return ok;
}

static int run_locked(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
                      const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
                      char *text) {
    int64_t n_row = 0;
    size_t at = 0;
    if (m->is_dead) {
        int guarded = mem_guard_lift();
        int rc = start_again(m, text);
        mem_guard_restore(guarded);
        if (rc) return rc;
    }
    for (int32_t i = 0; i < n; i++) {
        n_row += items[i].all ? items[i].n_tok : items[i].last;
        if (items[i].pos > 0 && items[i].epoch != m->epoch)
            return fail(text, CHIMERE_EDEVICE,
                        "the answer's state was lost with libllama's process");
    }
    if (n_row > m->p.n_out || !put_items(m, items, n, loras, n_lora, &at))
        return fail(text, CHIMERE_ELIMIT, "batch: expected at most %d tokens and %d rows",
                    m->p.n_batch, m->p.n_out);
    struct wire_head h = {.op = WIRE_RUN, .a = n, .b = n_lora};
    const struct part part = {m->message, at};
    int rc = call(m, &h, &part, 1, NULL, 0, text);
    if (!rc) *logits = m->child.map;
    return rc;
}

static int process_run(struct shim_model *m, const struct llama_shim_item *items, int32_t n,
                       const struct llama_shim_lora *loras, int32_t n_lora, const float **logits,
                       char *text) {
    *logits = NULL;
    pthread_mutex_lock(&m->lock);
    int rc = run_locked(m, items, n, loras, n_lora, logits, text);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

/* Sends one message if the process is alive; otherwise returns `dead`. */
static int64_t ask(struct shim_model *m, struct wire_head h, const struct part *part, void *out,
                   size_t n_out, int64_t dead) {
    char text[LLAMA_SHIM_TEXT];
    pthread_mutex_lock(&m->lock);
    int64_t got = dead;
    if (!m->is_dead) got = call(m, &h, part, part != NULL, out, n_out, text) ? 0 : h.a;
    pthread_mutex_unlock(&m->lock);
    return got > 0 ? got : 0;
}

static bool process_seq_remove(struct shim_model *m, int32_t seq, int64_t from) {
    /* a process that has ended has lost all sequences */
    return ask(m, (struct wire_head){.op = WIRE_REMOVE, .a = seq, .b = from}, NULL, NULL, 0, 1);
}

static void process_seq_share(struct shim_model *m, int32_t seq, int32_t to, int64_t n) {
    ask(m, (struct wire_head){.op = WIRE_SHARE, .a = seq, .b = to, .c = n}, NULL, NULL, 0, 0);
}

/* ---- states, adapters, embeddings ---- */

static size_t process_state_bytes(struct shim_model *m, int32_t seq) {
    return (size_t)ask(m, (struct wire_head){.op = WIRE_STATE_BYTES, .a = seq}, NULL, NULL, 0, 0);
}

static size_t process_state_save(struct shim_model *m, int32_t seq, void *out, size_t n) {
    const struct wire_head h = {.op = WIRE_STATE_SAVE, .a = seq, .b = (int64_t)n};
    return (size_t)ask(m, h, NULL, out, n, 0);
}

static size_t process_state_load(struct shim_model *m, int32_t seq, const void *in, size_t n) {
    const struct part part = {in, n};
    return (size_t)ask(m, (struct wire_head){.op = WIRE_STATE_LOAD, .a = seq}, &part, NULL, 0, 0);
}

static int process_lora_open(struct shim_model *m, const char *path, struct shim_lora **out,
                             char *text) {
    if (m->n_lora == LLAMA_SHIM_MAX_LORAS)
        return fail(text, CHIMERE_ELIMIT, "lora: expected at most %d", LLAMA_SHIM_MAX_LORAS);
    int rc = m->is_dead ? fail(text, CHIMERE_EDEVICE, "libllama's process has ended")
                        : send_lora(m, path, text);
    if (rc) return rc;
    m->loras[m->n_lora] = mem_strdup(path);
    if (!m->loras[m->n_lora]) return fail(text, CHIMERE_ENOMEM, "out of memory");
    *out = (struct shim_lora *)(intptr_t)++m->n_lora;
    return 0;
}

static int process_embed(struct shim_model *m, const int32_t *tokens, int32_t n, float *out,
                         char *text) {
    struct wire_head h = {.op = WIRE_EMBED, .a = n};
    const struct part part = {tokens, (size_t)n * sizeof *tokens};
    pthread_mutex_lock(&m->lock);
    int rc = m->is_dead ? start_again(m, text) : 0;
    if (!rc) rc = call(m, &h, &part, 1, out, (size_t)m->info.n_embd * sizeof *out, text);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static uint32_t process_epoch(const struct shim_model *m) {
    pthread_mutex_t *own = (pthread_mutex_t *)(uintptr_t)&m->lock;
    pthread_mutex_lock(own);
    uint32_t n = m->epoch + m->is_dead;
    pthread_mutex_unlock(own);
    return n;
}

/* ---- images: decoded and encoded in the process; their rows are kept here, so that they survive its end ---- */

static void process_image_close(struct shim_image *i) {
    if (i) mem_free(i->ids);
    mem_free(i);
}

static int read_image(struct shim_model *m, int64_t n_tok, int64_t n_row, struct shim_image *i,
                      char *text) {
    struct wire_head h = {.op = WIRE_IMAGE_READ};
    if (n_tok < 1 || n_tok > MAX_IMAGE_TOKENS || n_row < 0 || n_row > n_tok)
        return fail(text, CHIMERE_EFORMAT, "libmtmd reports an image of %lld tokens",
                    (long long)n_tok);
    i->n_id = (size_t)n_tok;
    i->n_row_byte = (size_t)n_row * (size_t)m->info.n_row_embd * sizeof(float);
    size_t n = i->n_id * sizeof *i->ids + i->n_row_byte;
    i->ids = mem_alloc(n);
    if (!i->ids) return fail(text, CHIMERE_ENOMEM, "out of memory");
    return call(m, &h, NULL, 0, i->ids, n, text);
}

static int process_image_open(struct shim_model *m, const void *data, size_t n,
                              struct shim_image **out, struct llama_shim_image *info, char *text) {
    struct wire_head h = {.op = WIRE_IMAGE};
    const struct part part = {data, n};
    *out = NULL;
    struct shim_image *i = mem_zalloc(sizeof *i);
    if (!i) return fail(text, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_lock(&m->lock);
    int rc = m->is_dead ? start_again(m, text) : 0;
    if (!rc) rc = call(m, &h, &part, 1, NULL, 0, text);
    *info = (struct llama_shim_image){(int32_t)h.a, (int32_t)h.b};
    if (!rc) rc = read_image(m, h.a, h.b, i, text);
    pthread_mutex_unlock(&m->lock);
    if (rc) process_image_close(i);
    else *out = i;
    return rc;
}

static void process_image_read(const struct shim_image *i, int32_t *ids, float *rows) {
    memcpy(ids, i->ids, i->n_id * sizeof *ids);
    if (i->n_row_byte) memcpy(rows, i->ids + i->n_id, i->n_row_byte);
}

static const char *process_library(void) { return library_name; }

int llama_process_open(const struct llama_shim **out, const char *library, struct err *e) {
    static const struct llama_shim process = {.version = LLAMA_SHIM_VERSION,
                                              .n_byte = sizeof process,
                                              .library = process_library,
                                              .open = process_open_model,
                                              .close = process_close,
                                              .run = process_run,
                                              .seq_remove = process_seq_remove,
                                              .seq_share = process_seq_share,
                                              .state_bytes = process_state_bytes,
                                              .state_save = process_state_save,
                                              .state_load = process_state_load,
                                              .lora_open = process_lora_open,
                                              .embed = process_embed,
                                              .epoch = process_epoch,
                                              .image_open = process_image_open,
                                              .image_read = process_image_read,
                                              .image_close = process_image_close};
    int rc = 0;
    *out = NULL;
    pthread_mutex_lock(&lock);
    if (!library_path[0] && !library) rc = llama_lib_find(library_path, sizeof library_path, e);
    else if (!library_path[0] && strlen(library) < sizeof library_path && file_exists(library))
        snprintf(library_path, sizeof library_path, "%s", library);
    else if (!library_path[0]) rc = err_set(e, CHIMERE_ENOENT, "%s: no such library", library);
    pthread_mutex_unlock(&lock);
    if (!rc) *out = &process;
    return rc;
}
