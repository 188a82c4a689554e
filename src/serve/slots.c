#include "serve/slots.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"

enum { MAX_SLOTS = 256, MAX_FILE = 64 << 20, HEAD_BYTES = 24 };
/* followed by the tokenizer's hash, the count and the ids */
static const char magic[8] = "CHSLOT1\n";

struct slot {
    char owner[80];
    size_t entry; /* index in the catalogue */
    int32_t id;
    uint64_t epoch; /* 0: uses the owner's scope */
    int32_t *ids;   /* owned [n] */
    size_t n;
    uint64_t used;
};

struct slots {
    pthread_mutex_t lock;
    struct slot list[MAX_SLOTS];
    size_t n;
    uint64_t n_use;
};

struct slots *slots_new(void) {
    struct slots *s = mem_zalloc(sizeof *s);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

void slots_free(struct slots *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) mem_free(s->list[i].ids);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* Call with the lock held. Returns NULL if there is no such slot. With `make`, creates it; if the list is full, it
 * replaces the least recently used one. */
static struct slot *find(struct slots *s, const char *owner, size_t entry, int32_t id, bool make) {
    struct slot *oldest = s->list;
    for (size_t i = 0; i < s->n; i++) {
        struct slot *x = &s->list[i];
        if (x->id == id && x->entry == entry && strcmp(x->owner, owner) == 0) {
            x->used = ++s->n_use;
            return x;
        }
        if (x->used < oldest->used) oldest = x;
    }
    if (!make) return NULL;
    struct slot *x = s->n < MAX_SLOTS ? &s->list[s->n++] : oldest;
    mem_free(x->ids);
    *x = (struct slot){.entry = entry, .id = id, .used = ++s->n_use};
    snprintf(x->owner, sizeof x->owner, "%s", owner);
    return x;
}

void slots_put(struct slots *s, const struct gen *g, const struct generation *run) {
    const int32_t *prompt, *answer;
    int32_t n_prompt, n_answer;
    g->backend->ops->tokens(run, &prompt, &n_prompt, &answer, &n_answer);
    if (g->request.no_answer) n_answer = 0;
    size_t n = (size_t)n_prompt + (size_t)n_answer;
    int32_t *ids = mem_alloc_array(n + 1, sizeof *ids);
    if (!ids) return;
    memcpy(ids, prompt, (size_t)n_prompt * sizeof *ids);
    if (n_answer) memcpy(ids + n_prompt, answer, (size_t)n_answer * sizeof *ids);
    pthread_mutex_lock(&s->lock);
    struct slot *x = find(s, g->r->owner, g->entry, g->request.slot, true);
    mem_free(x->ids);
    x->ids = ids;
    x->n = n;
    pthread_mutex_unlock(&s->lock);
}

uint64_t slots_scope(struct slots *s, const struct gen *g, uint64_t scope) {
    pthread_mutex_lock(&s->lock);
    const struct slot *x = find(s, g->r->owner, g->entry, g->request.slot, false);
    uint64_t epoch = x ? x->epoch : 0;
    pthread_mutex_unlock(&s->lock);
    const uint64_t parts[] = {scope, epoch, (uint64_t)g->request.slot};
    return epoch ? hash_bytes(parts, sizeof parts, 3) | 1 : scope;
}

/* ---- POST /slots/N?action=save|restore|erase ---- */

struct action { /* one request */
    struct http_request *r;
    json_t *body; /* owned */
    struct backend *backend;
    size_t entry;
    int32_t id;
    const char *file; /* view */
    char path[4096];
    int64_t begin_ns;
};

/* Builds the path OWNER-NAME in the folder of slots. The name and the owner must not contain separators. */
static int file_of(struct action *a, struct err *e) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *dir = a->r->s->p.slots_dir;
    char owner[80];
    if (!dir)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "this server saves no slots: start it with --state-dir DIR");
    a->file = json_string_value(json_object_get(a->body, "filename"));
    if (!a->file || !a->file[0] || strlen(a->file) > 128 || a->file[0] == '.' ||
        a->file[strspn(a->file, allowed)])
        return err_set(e, CHIMERE_EINVAL,
                       "filename: expected 1 to 128 letters, digits, '.', '_' or '-'");
    snprintf(owner, sizeof owner, "%s", a->r->owner);
    for (char *p = owner; *p; p++)
        if (!strchr(allowed, *p)) *p = '_';
    int n = snprintf(a->path, sizeof a->path, "%s/%s-%s", dir, owner, a->file);
    if (n < 0 || (size_t)n >= sizeof a->path)
        return err_set(e, CHIMERE_ELIMIT, "filename: the path is too long");
    return file_mkdirs(dir, e);
}

static void reply(struct action *a, const char *what, size_t n, const char *bytes, size_t n_byte,
                  const char *time) {
    struct buf out;
    buf_init(&out, 4096);
    buf_printf(&out, "{\"id_slot\":%d,\"filename\":", a->id);
    json_out_string(&out, a->file);
    buf_printf(&out, ",\"%s\":%zu,\"%s\":%zu,\"timings\":{\"%s\":%.3f}}", what, n, bytes, n_byte,
               time, clock_ms_since(a->begin_ns));
    http_reply(a->r, 200, NULL, &out);
    buf_fini(&out);
}

static int save(struct action *a, struct err *e) {
    struct slots *s = a->r->s->slots;
    uint64_t hash = tok_hash(a->backend->model->tok), n = 0;
    struct buf out;
    int rc = file_of(a, e);
    if (rc) return rc;
    buf_init(&out, MAX_FILE);
    pthread_mutex_lock(&s->lock);
    const struct slot *x = find(s, a->r->owner, a->entry, a->id, false);
    if (x && x->n) {
        n = x->n;
        buf_put(&out, magic, sizeof magic);
        buf_put(&out, (const char *)&hash, sizeof hash);
        buf_put(&out, (const char *)&n, sizeof n);
        buf_put(&out, (const char *)x->ids, x->n * sizeof *x->ids);
    }
    pthread_mutex_unlock(&s->lock);
    if (!n) rc = err_set(e, CHIMERE_ENOENT, "slot %d: no request has named it by id_slot", a->id);
    else if (out.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else rc = file_write(a->path, out.p, out.n, e);
    if (!rc) reply(a, "n_saved", (size_t)n, "n_written", out.n, "save_ms");
    buf_fini(&out);
    return rc;
}

static void erase(struct action *a) {
    struct slots *s = a->r->s->slots;
    struct buf out;
    pthread_mutex_lock(&s->lock);
    struct slot *x = find(s, a->r->owner, a->entry, a->id, true);
    size_t n = x->n;
    mem_free(x->ids);
    x->ids = NULL;
    x->n = 0;
    x->epoch = hash_mix((uint64_t)clock_ns()) | 1;
    pthread_mutex_unlock(&s->lock);
    buf_init(&out, 256);
    buf_printf(&out, "{\"id_slot\":%d,\"n_erased\":%zu}", a->id, n);
    http_reply(a->r, 200, NULL, &out);
    buf_fini(&out);
}

/* Reads the ids from a file, which is not trusted. */
static json_t *read_ids(struct action *a, size_t *n_byte, struct err *e) {
    char *text = NULL;
    uint64_t head[2];
    json_t *ids = NULL;
    int rc = file_of(a, e);
    if (!rc) rc = file_read(a->path, MAX_FILE, &text, n_byte, e);
    if (rc) {
        if (a->file && e->code == CHIMERE_ENOENT)
            err_set(e, CHIMERE_ENOENT, "filename: there is no '%.128s' here", a->file);
        return NULL;
    }
    bool ok = *n_byte >= HEAD_BYTES && memcmp(text, magic, sizeof magic) == 0;
    if (ok) memcpy(head, text + sizeof magic, sizeof head);
    ok = ok && head[1] > 0 && head[1] == (*n_byte - HEAD_BYTES) / sizeof(int32_t) &&
         (*n_byte - HEAD_BYTES) % sizeof(int32_t) == 0;
    if (!ok) err_set(e, CHIMERE_EFORMAT, "filename: '%.128s' is no saved slot", a->file);
    else if (head[0] != tok_hash(a->backend->model->tok))
        err_set(e, CHIMERE_EINVAL, "filename: '%.128s' was saved with another tokenizer", a->file);
    else ids = json_array();
    for (size_t i = 0; ids && i < head[1]; i++) {
        int32_t id;
        memcpy(&id, text + HEAD_BYTES + i * sizeof id, sizeof id);
        json_array_append_new(ids, json_integer(id));
    }
    mem_free(text);
    return ids;
}

static void whole(struct gen *g, struct buf *out) {
    const struct engine_stats *s = &g->choices[0].end.stats;
    buf_printf(out, "{\"id_slot\":%d,\"filename\":", g->request.slot);
    json_out_value(out, json_object_get(g->echo, "filename"));
    buf_printf(out, ",\"n_restored\":%d,\"n_read\":%zu,\"timings\":{\"restore_ms\":%.3f}}",
               s->n_prompt, HEAD_BYTES + (size_t)s->n_prompt * sizeof(int32_t),
               clock_ms_since(g->r->begin_ns));
}

static const struct gen_form restore_form = {.whole = whole};

/* Evaluates the saved tokens as a prompt without an answer. */
static int restore(struct action *a, struct err *e) {
    size_t n_byte;
    json_t *ids = read_ids(a, &n_byte, e);
    if (!ids) return e->code;
    struct gen *g = gen_new(a->r, &restore_form, "slot-");
    if (!g || gen_model(g, json_object_get(a->body, "model"))) {
        json_decref(ids);
        return 0; /* the response was sent */
    }
    g->request.prompt = ids;
    g->request.no_answer = true;
    g->request.max_tokens = 1;
    g->request.slot = a->id;
    g->echo = json_incref(a->body);
    gen_go(g);
    return 0;
}

static int run_action(struct action *a, struct err *e) {
    const char *action = http_query(a->r, "action");
    int64_t id;
    if (!str_to_i64(http_rest(a->r), 0, ENGINE_MAX_SEQS - 1, &id))
        return err_set(e, CHIMERE_EINVAL, "slot: expected a number from 0 to %d",
                       ENGINE_MAX_SEQS - 1);
    a->id = (int32_t)id;
    a->backend = catalog_resolve(
        a->r->s->p.catalog, json_string_value(json_object_get(a->body, "model")), &a->entry, e);
    if (!a->backend) return e->code;
    if (!a->backend->model || !a->backend->ops->tokens)
        return err_set(e, CHIMERE_EUNSUPPORTED, "model: it has no slots here");
    if (action && strcmp(action, "save") == 0) return save(a, e);
    if (action && strcmp(action, "restore") == 0) return restore(a, e);
    if (!action || strcmp(action, "erase") != 0)
        return err_set(e, CHIMERE_EINVAL, "action: expected save, restore or erase, got %.40s",
                       action ? action : "none");
    erase(a);
    return 0;
}

void slots_post(struct http_request *r) {
    struct err e = {0};
    size_t n;
    http_body(r, &n);
    struct action a = {.r = r, .begin_ns = clock_ns()};
    a.body = n ? api_json(r) : json_object();
    if (!a.body) return;
    if (run_action(&a, &e)) http_fail(r, &e);
    json_decref(a.body);
}
