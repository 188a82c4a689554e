#include "serve/kept.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct entry {
    char *owner, *id, *input, *response; /* owned */
    size_t n_byte;
    int64_t at_ns;
    struct entry *next; /* younger */
};

struct kept {
    pthread_mutex_t lock;
    struct entry *oldest, *youngest; /* owned */
    size_t n_byte, max_bytes;
    int64_t keep_ns;
};

struct kept *kept_new(size_t max_bytes, int64_t seconds) {
    struct kept *k = mem_zalloc(sizeof *k);
    if (!k) return NULL;
    pthread_mutex_init(&k->lock, NULL);
    k->max_bytes = max_bytes;
    k->keep_ns = seconds * 1000000000;
    return k;
}

static void free_entry(struct entry *x) {
    if (!x) return;
    mem_free(x->owner);
    mem_free(x->id);
    mem_free(x->input);
    mem_free(x->response);
    mem_free(x);
}

/* Under the lock. */
static struct entry *take_out(struct kept *k, struct entry **at, struct entry *before) {
    struct entry *x = *at;
    *at = x->next;
    if (k->youngest == x) k->youngest = before;
    k->n_byte -= x->n_byte;
    return x;
}

static void make_room(struct kept *k, size_t n) {
    int64_t now = clock_ns();
    while (k->oldest && (k->n_byte + n > k->max_bytes || now - k->oldest->at_ns > k->keep_ns))
        free_entry(take_out(k, &k->oldest, NULL));
}

void kept_free(struct kept *k) {
    if (!k) return;
    while (k->oldest) free_entry(take_out(k, &k->oldest, NULL));
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

int kept_put(struct kept *k, const char *owner, const char *id, const char *input,
             const char *response) {
    struct entry *x = mem_zalloc(sizeof *x);
    if (!x) return CHIMERE_ENOMEM;
    x->owner = mem_strdup(owner);
    x->id = mem_strdup(id);
    x->input = mem_strdup(input);
    x->response = mem_strdup(response);
    x->n_byte = sizeof *x + strlen(owner) + strlen(id) + strlen(input) + strlen(response);
    x->at_ns = clock_ns();
    if (!x->owner || !x->id || !x->input || !x->response || x->n_byte > k->max_bytes / 4) {
        free_entry(x);
        return CHIMERE_ENOMEM;
    }
    pthread_mutex_lock(&k->lock);
    make_room(k, x->n_byte);
    if (k->youngest) k->youngest->next = x;
    else k->oldest = x;
    k->youngest = x;
    k->n_byte += x->n_byte;
    pthread_mutex_unlock(&k->lock);
    return 0;
}

/* Under the lock: where the pointer to it stands; *before is the one in front of it. */
static struct entry **find(struct kept *k, const char *owner, const char *id,
                           struct entry **before) {
    *before = NULL;
    make_room(k, 0);
    for (struct entry **at = &k->oldest; *at; *before = *at, at = &(*at)->next)
        if (strcmp((*at)->id, id) == 0 && strcmp((*at)->owner, owner) == 0) return at;
    return NULL;
}

int kept_find(struct kept *k, const char *owner, const char *id, json_t **input,
              json_t **response) {
    struct entry *before;
    char *texts[2] = {NULL, NULL};
    pthread_mutex_lock(&k->lock);
    struct entry **at = find(k, owner, id, &before);
    if (at && input) texts[0] = mem_strdup((*at)->input);
    if (at && response) texts[1] = mem_strdup((*at)->response);
    pthread_mutex_unlock(&k->lock);
    if (input) *input = texts[0] ? json_loads(texts[0], JSON_DECODE_ANY, NULL) : NULL;
    if (response) *response = texts[1] ? json_loads(texts[1], JSON_DECODE_ANY, NULL) : NULL;
    mem_free(texts[0]);
    mem_free(texts[1]);
    return (input && !*input) || (response && !*response) || !at ? CHIMERE_ENOENT : 0;
}

int kept_drop(struct kept *k, const char *owner, const char *id) {
    struct entry *before, *x = NULL;
    pthread_mutex_lock(&k->lock);
    struct entry **at = find(k, owner, id, &before);
    if (at) x = take_out(k, at, before);
    pthread_mutex_unlock(&k->lock);
    free_entry(x);
    return x ? 0 : CHIMERE_ENOENT;
}
