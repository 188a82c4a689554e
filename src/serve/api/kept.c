#include "serve/api/kept.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "store/answer.h"

struct kept {
    struct store *store, *own; /* own: an in-memory store, owned, or NULL */
    int64_t max_bytes, keep_ms;
};

int kept_open(struct kept **out, struct store *store, int64_t max_bytes, int64_t seconds,
              struct err *e) {
    struct kept *k = *out = mem_zalloc(sizeof *k);
    if (!k) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    k->max_bytes = max_bytes;
    k->keep_ms = seconds * 1000;
    int rc = store ? 0 : store_open(&k->own, ":memory:", e);
    k->store = store ? store : k->own;
    if (!rc) return 0;
    mem_free(k);
    *out = NULL;
    return rc;
}

void kept_close(struct kept *k) {
    if (!k) return;
    store_close(k->own);
    mem_free(k);
}

int kept_put(struct kept *k, const char *owner, const char *id, const char *input,
             const char *response) {
    const struct store_answer a = {
        .owner = owner, .name = id, .input = input, .response = response};
    struct err e = {0};
    size_t n = strlen(id) + strlen(input) + strlen(response);
    if (n > (size_t)k->max_bytes / 4) return CHIMERE_ELIMIT;
    int rc = store_answer_add(k->store, &a, store_now_ms() - k->keep_ms, k->max_bytes, &e);
    if (rc) log_warn("an answer is not kept: %s", e.text);
    return rc;
}

struct texts {
    bool wants[2]; /* input, response */
    char *of[2];   /* owned */
};

/* Called with the store's lock held: copies only; parsing is done later. */
static void copy_texts(void *ud, const struct store_answer *a) {
    struct texts *t = ud;
    if (t->wants[0]) t->of[0] = mem_strdup(a->input);
    if (t->wants[1]) t->of[1] = mem_strdup(a->response);
}

int kept_find(struct kept *k, const char *owner, const char *id, json_t **input,
              json_t **response) {
    struct texts t = {.wants = {input, response}};
    struct err e = {0};
    int rc =
        store_answer_find(k->store, owner, id, store_now_ms() - k->keep_ms, copy_texts, &t, &e);
    if (input) *input = t.of[0] ? json_loads(t.of[0], JSON_DECODE_ANY, NULL) : NULL;
    if (response) *response = t.of[1] ? json_loads(t.of[1], JSON_DECODE_ANY, NULL) : NULL;
    mem_free(t.of[0]);
    mem_free(t.of[1]);
    if (rc && rc != CHIMERE_ENOENT) log_warn("a kept answer cannot be read: %s", e.text);
    return rc || (input && !*input) || (response && !*response) ? CHIMERE_ENOENT : 0;
}

int kept_drop(struct kept *k, const char *owner, const char *id) {
    struct err e = {0};
    int rc = store_answer_drop(k->store, owner, id, &e);
    if (rc && rc != CHIMERE_ENOENT) log_warn("a kept answer cannot be deleted: %s", e.text);
    return rc ? CHIMERE_ENOENT : 0;
}
