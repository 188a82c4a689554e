#include "backend/replay.h"

#include <string.h>

#include "backend/replay_shared.h"
#include "base/hash.h"
#include "base/thread.h"

enum { N_BUCKET = 4096, MAX_LOOKED_AT = 64 };

struct entry {
    uint64_t key[2];
    bool think;
    int32_t *ids; /* owned [n]: the answer's tokens, without the end token */
    int32_t n;    /* 0: neither this server nor another one knows the answer */
    /* owned: the message as the template last rendered it, without the end of the turn */
    char *text;
    size_t n_text;
    size_t n_head;      /* length of the part of text before the answer's own tokens */
    uint64_t text_key;  /* hash of the message from which text was rendered */
    struct entry *next; /* in the bucket */
    struct entry *newer, *older;
};

struct replay {
    pthread_mutex_t lock;
    const struct chat_template *template; /* borrowed */
    const struct tok *tok;                /* borrowed */
    struct replay_shared *shared;         /* owned; NULL: answers are not shared */
    size_t max_bytes, n_bytes;
    struct entry *buckets[N_BUCKET];
    struct entry *newest, *oldest;
};

int replay_new(struct replay **out, const struct chat_template *t, const struct tok *tok,
               size_t max_bytes, struct err *e) {
    struct replay *p = mem_zalloc(sizeof *p);
    *out = p;
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&p->lock, NULL);
    p->template = t;
    p->tok = tok;
    p->max_bytes = max_bytes;
    return 0;
}

static size_t bytes_of(const struct entry *x) {
    return sizeof *x + (size_t)x->n * sizeof *x->ids + x->n_text;
}

static void free_entry(struct entry *x) {
    mem_free(x->ids);
    mem_free(x->text);
    mem_free(x);
}

void replay_free(struct replay *p) {
    if (!p) return;
    replay_shared_free(p->shared);
    for (struct entry *x = p->oldest, *next; x; x = next) {
        next = x->newer;
        free_entry(x);
    }
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* ---- hash of a message ---- */

static void add(uint64_t key[2], const char *s, size_t n) {
    key[0] = hash_bytes(s, n, key[0] + 1);
    key[1] = hash_bytes(s, n, key[1] ^ 0x9e3779b97f4a7c15ULL);
}
static int add_dump(const char *s, size_t n, void *arg) {
    add(arg, s, n);
    return 0;
}

static void add_trimmed(uint64_t key[2], const json_t *v) {
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    while (n && (s[0] == ' ' || s[0] == '\n')) s++, n--;
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\n')) n--;
    add(key, s ? s : "", n);
}

/* Arguments are hashed as values, because clients parse them and format them again. Integers of more than 64 bits,
 * which jansson refuses, are hashed with all their digits. */
static json_t *value_of(const json_t *args) {
    const char *text = json_string_value(args);
    size_t n = json_string_length(args);
    if (!text) return json_incref((json_t *)args);
    json_t *parsed = chat_json_exact(text, n);
    return parsed ? parsed : json_loadb(text, n, 0, NULL);
}

static void key_of(uint64_t scope, const json_t *message, uint64_t key[2]) {
    const json_t *call;
    size_t i;
    key[0] = key[1] = 0;
    add(key, (const char *)&scope, sizeof scope);
    add_trimmed(key, json_object_get(message, "content"));
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        const json_t *args = json_object_get(f, "arguments");
        json_t *parsed = value_of(args);
        add_trimmed(key, json_object_get(f, "name"));
        if (parsed) json_dump_callback(parsed, add_dump, key, JSON_SORT_KEYS | JSON_ENCODE_ANY);
        else add_trimmed(key, args);
        json_decref(parsed);
    }
}

/* ---- storage; call with the lock held ---- */

static struct entry **bucket_of(struct replay *p, const uint64_t key[2]) {
    return &p->buckets[key[0] % N_BUCKET];
}

static void unlink_entry(struct replay *p, struct entry *x) {
    struct entry **at = bucket_of(p, x->key);
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    if (x->newer) x->newer->older = x->older;
    else p->newest = x->older;
    if (x->older) x->older->newer = x->newer;
    else p->oldest = x->newer;
    p->n_bytes -= bytes_of(x);
}

static void link_entry(struct replay *p, struct entry *x) {
    struct entry **at = bucket_of(p, x->key);
    x->next = *at;
    *at = x;
    x->older = p->newest;
    x->newer = NULL;
    if (p->newest) p->newest->newer = x;
    else p->oldest = x;
    p->newest = x;
    p->n_bytes += bytes_of(x);
}

static struct entry *find(struct replay *p, const uint64_t key[2]) {
    struct entry *x = *bucket_of(p, key);
    while (x && (x->key[0] != key[0] || x->key[1] != key[1])) x = x->next;
    return x;
}

/* Returns NULL if memory is short. n 0: an answer that is known to be unknown. */
static struct entry *entry_of(const uint64_t key[2], bool think, const int32_t *ids, int32_t n) {
    struct entry *x = mem_zalloc(sizeof *x);
    if (x && n) x->ids = mem_alloc_array((size_t)n, sizeof *x->ids);
    if (!x || (n && !x->ids)) {
        mem_free(x);
        return NULL;
    }
    if (n) memcpy(x->ids, ids, (size_t)n * sizeof *ids);
    *x = (struct entry){.key = {key[0], key[1]}, .think = think, .ids = x->ids, .n = n};
    return x;
}

/* Takes x, in place of an older entry of its key. */
static void insert(struct replay *p, struct entry *x) {
    pthread_mutex_lock(&p->lock);
    struct entry *old = find(p, x->key);
    if (old) {
        unlink_entry(p, old);
        free_entry(old);
    }
    link_entry(p, x);
    while (p->n_bytes > p->max_bytes && p->oldest != x) {
        old = p->oldest;
        unlink_entry(p, old);
        free_entry(old);
    }
    pthread_mutex_unlock(&p->lock);
}

void replay_put(struct replay *p, uint64_t scope, bool think, const json_t *message,
                const int32_t *ids, int32_t n) {
    uint64_t key[2];
    while (n > 0 && tok_is_eog(p->tok, ids[n - 1])) n--;
    key_of(scope, message, key);
    struct entry *x = n > 0 ? entry_of(key, think, ids, n) : NULL;
    if (!x) return;
    insert(p, x);
    if (!p->shared) return;
    struct replay_answer a = {.scope = scope,
                              .key = {key[0], key[1]},
                              .message = json_deep_copy(message),
                              .ids = mem_alloc_array((size_t)n, sizeof *a.ids),
                              .n = n,
                              .think = think};
    if (a.message && a.ids) {
        memcpy(a.ids, ids, (size_t)n * sizeof *ids);
        replay_shared_put(p->shared, &a);
    } else {
        json_decref(a.message);
        mem_free(a.ids);
    }
}

/* ---- how the template renders a message ---- */

static char *render(const struct replay *p, json_t *messages, bool generate, bool think) {
    struct chat_prompt out;
    json_t *c = json_pack("{s:O,s:b,s:b,s:s,s:s}", "messages", messages, "add_generation_prompt",
                          generate, "enable_thinking", think, "bos_token", "", "eos_token", "");
    char *text = NULL;
    if (c && !chat_render(p->template, c, false, NULL, &out, NULL))
        text = mem_strndup(out.out.text.p ? out.out.text.p : "", out.out.text.n);
    if (c) chat_prompt_fini(&out);
    json_decref(c);
    return text;
}

/* Renders the message's turn after a short question. *text: from the start of the turn to its end. *n_head: length of
 * the part that a generation prompt already contains. */
static bool write_turn(const struct replay *p, bool think, json_t *message, char **text,
                       size_t *n_head) {
    json_t *question = json_pack("[{s:s,s:s}]", "role", "user", "content", "q");
    json_t *both = json_pack("[{s:s,s:s},O]", "role", "user", "content", "q", message);
    char *before = render(p, question, false, think), *head = render(p, question, true, think),
         *all = render(p, both, false, think);
    size_t n_before = before ? strlen(before) : 0;
    bool ok = before && head && all && strncmp(head, before, n_before) == 0 &&
              strncmp(all, head, strlen(head)) == 0;
    if (ok) {
        /* the turn ends with the last end token; text that the template writes after it does not belong to the
         * message */
        size_t n_all = strlen(all), end = n_all;
        for (size_t i = n_all; i-- > strlen(head) && end == n_all;)
            if (all[i] == '<' || all[i] == '[') {
                int32_t id = tok_find(p->tok, all + i, strcspn(all + i, "\n"));
                if (id >= 0 && tok_is_eog(p->tok, id)) end = i;
            }
        ok = end < n_all;
        *n_head = strlen(head) - n_before;
        *text = ok ? mem_strndup(all + n_before, end - n_before) : NULL;
        ok = *text != NULL;
    }
    json_decref(question);
    json_decref(both);
    mem_free(before);
    mem_free(head);
    mem_free(all);
    return ok;
}

/* ---- answers of other servers ---- */

/* Whether the answer's tokens are others than a server finds that only knows the message. */
static bool needs_file(void *ud, const struct replay_answer *a) {
    const struct replay *p = ud;
    char *text = NULL;
    int32_t *head = NULL, *all = NULL;
    size_t n_text_head = 0, n_head = 0, n_all = 0;
    if (!write_turn(p, a->think, a->message, &text, &n_text_head)) return false;
    bool ok = !tok_encode(p->tok, text, n_text_head, true, false, &head, &n_head, NULL) &&
              !tok_encode(p->tok, text, strlen(text), true, false, &all, &n_all, NULL);
    bool same = ok && n_all == n_head + (size_t)a->n && !memcmp(all, head, n_head * sizeof *head) &&
                !memcmp(all + n_head, a->ids, (size_t)a->n * sizeof *all);
    mem_free(text);
    mem_free(head);
    mem_free(all);
    return ok && !same;
}

int replay_share(struct replay *p, const char *dir, struct err *e) {
    const struct replay_shared_params shared = {
        .dir = dir, .form = tok_hash(p->tok), .needs = needs_file, .ud = p};
    return replay_shared_new(&p->shared, &shared, e);
}

static bool are_valid(const struct replay *p, const struct replay_answer *a) {
    for (int32_t i = 0; i < a->n; i++)
        if (a->ids[i] < 0 || (uint32_t)a->ids[i] >= tok_n_vocab(p->tok)) return false;
    return true;
}

/* Looks for an answer that this server does not know in the shared folder, once. */
static void ask_others(struct replay *p, uint64_t scope, const uint64_t key[2]) {
    if (!p->shared) return;
    pthread_mutex_lock(&p->lock);
    bool known = find(p, key);
    pthread_mutex_unlock(&p->lock);
    struct replay_answer a = {.scope = scope, .key = {key[0], key[1]}};
    int rc = known ? CHIMERE_ENOENT : replay_shared_find(p->shared, &a);
    bool use = rc == 1 && are_valid(p, &a);
    struct entry *x = rc >= 0 ? entry_of(key, a.think, a.ids, use ? a.n : 0) : NULL;
    mem_free(a.ids);
    if (x) insert(p, x);
}

/* Copies the stored entry of a message, with the text of its turn. Templates are rendered without the lock, because the
 * engine's thread takes it too. */
static bool look_up(struct replay *p, uint64_t scope, const uint64_t key[2], json_t *message,
                    struct entry *out) {
    uint64_t text_key[2] = {1, 1};
    ask_others(p, scope, key);
    json_dump_callback(message, add_dump, text_key, JSON_SORT_KEYS);
    *out = (struct entry){.n = 0};
    pthread_mutex_lock(&p->lock);
    struct entry *x = find(p, key);
    if (x && x->n) {
        out->ids = mem_alloc_array((size_t)x->n, sizeof *out->ids);
        if (out->ids) memcpy(out->ids, x->ids, (size_t)x->n * sizeof *x->ids);
        if (x->text && x->text_key == text_key[0]) out->text = mem_strdup(x->text);
        out->n = x->n;
        out->think = x->think;
        out->n_head = x->n_head;
    }
    pthread_mutex_unlock(&p->lock);
    if (!out->ids) return false;
    bool fresh = !out->text;
    if (fresh && !write_turn(p, out->think, message, &out->text, &out->n_head)) return false;
    out->n_text = strlen(out->text);
    if (!fresh) return true;
    char *text = mem_strdup(out->text);
    pthread_mutex_lock(&p->lock);
    x = text ? find(p, key) : NULL;
    if (x) {
        p->n_bytes += out->n_text - x->n_text;
        mem_free(x->text);
        x->text = text;
        x->n_text = out->n_text;
        x->n_head = out->n_head;
        x->text_key = text_key[0];
        text = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    mem_free(text);
    return true;
}

/* ---- prompts ---- */

struct ids {
    int32_t *p; /* owned */
    size_t n;
};

static int append(struct ids *out, const int32_t *ids, size_t n, struct err *e) {
    int32_t *p = mem_realloc(out->p, (out->n + n + 1) * sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (n) memcpy(p + out->n, ids, n * sizeof *ids);
    out->p = p;
    out->n += n;
    return 0;
}

static int append_plain(const struct replay *p, const struct chat_prompt *prompt, size_t from,
                        size_t to, struct ids *out, struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = chat_encode_range(p->tok, prompt, from, to, &ids, &n, e);
    if (!rc) rc = append(out, ids, n, e);
    mem_free(ids);
    return rc;
}

/* Appends text, and images at the positions of their marks. */
static int append_text(const struct replay *p, const struct chat_prompt *prompt, size_t from,
                       size_t to, struct images *im, struct ids *out, struct err *e) {
    const struct vision_image *i;
    size_t at, n_mark;
    int rc = 0;
    while (!rc && im->n &&
           (i = images_find(im, prompt->out.text.p + from, to - from, &at, &n_mark))) {
        if (at) rc = append_plain(p, prompt, from, from + at, out, e);
        if (!rc) rc = images_place(im, i, out->n, e);
        if (!rc) rc = append(out, i->ids, (size_t)i->n_tok, e);
        from += at + n_mark;
    }
    return rc || (from == to && out->n) ? rc : append_plain(p, prompt, from, to, out, e);
}

int replay_encode(struct replay *p, uint64_t scope, const json_t *messages,
                  const struct chat_prompt *prompt, struct images *im, int32_t **ids, size_t *n,
                  struct err *e) {
    const struct buf *text = &prompt->out.text;
    size_t i, at = 0, n_message = json_array_size(messages);
    json_t *m;
    struct ids out = {NULL, 0};
    int rc = 0;
    json_array_foreach(messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        uint64_t key[2];
        struct entry x;
        if (rc || !role || strcmp(role, "assistant") != 0 || i + MAX_LOOKED_AT < n_message)
            continue;
        key_of(scope, m, key);
        bool known = look_up(p, scope, key, m, &x);
        const char *found =
            known && text->n ? memmem(text->p + at, text->n - at, x.text, x.n_text) : NULL;
        if (found) {
            size_t begin = (size_t)(found - text->p);
            rc = append_text(p, prompt, at, begin + x.n_head, im, &out, e);
            if (!rc) rc = append(&out, x.ids, (size_t)x.n, e);
            at = begin + x.n_text;
        }
        mem_free(x.ids);
        mem_free(x.text);
    }
    if (!rc) rc = append_text(p, prompt, at, text->n, im, &out, e);
    if (rc) {
        mem_free(out.p);
        return rc;
    }
    *ids = out.p;
    *n = out.n;
    return 0;
}
