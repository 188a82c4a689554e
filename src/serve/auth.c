#include "serve/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

enum { MAX_KEYS = 4096, MAX_KEY_BYTES = 512 };

struct auth_key {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char name[48];
    int64_t max_parallel, per_minute; /* 0: no limit */
    int64_t n_running;
    double tokens; /* of the bucket that per_minute fills */
    int64_t filled_ns;
};

struct auth {
    pthread_mutex_t lock;
    struct auth_key *keys; /* owned [n] */
    size_t n;
};

static void digest(const char *text, size_t n, unsigned char out[SHA256_DIGEST_LENGTH]) {
    SHA256((const unsigned char *)text, n, out);
}

/* One word of a line behind the key. */
static int read_word(struct auth_key *k, const char *word, size_t line, struct err *e) {
    int64_t n;
    if (str_starts(word, "parallel=")) {
        if (!str_to_i64(word + 9, 1, 1 << 20, &n))
            return err_set(e, CHIMERE_EINVAL, "api keys: line %zu: parallel: expected 1 or more",
                           line);
        k->max_parallel = n;
    } else if (str_starts(word, "per-minute=")) {
        if (!str_to_i64(word + 11, 1, 1 << 30, &n))
            return err_set(e, CHIMERE_EINVAL, "api keys: line %zu: per-minute: expected 1 or more",
                           line);
        k->per_minute = n;
        k->tokens = (double)n;
    } else if (strchr(word, '=')) {
        return err_set(e, CHIMERE_EINVAL,
                       "api keys: line %zu: expected parallel= or per-minute=", line);
    } else {
        snprintf(k->name, sizeof k->name, "%s", word);
    }
    return 0;
}

static int read_line(struct auth *a, char *text, size_t line, struct err *e) {
    char *hash = strchr(text, '#'), *save = NULL;
    if (hash) *hash = 0;
    char *word = strtok_r(text, " \t\r", &save);
    if (!word) return 0;
    if (a->n == MAX_KEYS)
        return err_set(e, CHIMERE_ELIMIT, "api keys: expected at most %d", MAX_KEYS);
    if (strlen(word) < 8 || strlen(word) > MAX_KEY_BYTES)
        return err_set(e, CHIMERE_EINVAL, "api keys: line %zu: expected 8 to %d characters", line,
                       MAX_KEY_BYTES);
    struct auth_key *k = &a->keys[a->n++];
    digest(word, strlen(word), k->digest);
    snprintf(k->name, sizeof k->name, "key-%zu", a->n);
    k->filled_ns = clock_ns();
    int rc = 0;
    while (!rc && (word = strtok_r(NULL, " \t\r", &save))) rc = read_word(k, word, line, e);
    return rc;
}

int auth_open(struct auth **out, const char *text, struct err *e) {
    struct auth *a = mem_zalloc(sizeof *a);
    char *copy = mem_strdup(text), *save = NULL;
    int rc = 0;
    *out = NULL;
    if (a) a->keys = mem_alloc_array(MAX_KEYS, sizeof *a->keys);
    if (!a || !copy || !a->keys) {
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    } else {
        pthread_mutex_init(&a->lock, NULL);
        size_t line = 1;
        for (char *at = strtok_r(copy, "\n", &save); at && !rc; at = strtok_r(NULL, "\n", &save))
            rc = read_line(a, at, line++, e);
        if (!rc && !a->n) rc = err_set(e, CHIMERE_EINVAL, "api keys: the file names none");
    }
    if (copy) OPENSSL_cleanse(copy, strlen(text));
    mem_free(copy);
    if (rc) auth_close(a);
    else *out = a;
    return rc;
}

void auth_close(struct auth *a) {
    if (!a) return;
    if (a->keys) pthread_mutex_destroy(&a->lock);
    mem_free(a->keys);
    mem_free(a);
}

struct auth_key *auth_find(struct auth *a, const char *sent) {
    unsigned char d[SHA256_DIGEST_LENGTH];
    if (!sent) return NULL;
    if (strncasecmp(sent, "bearer ", 7) == 0) sent += 7;
    while (*sent == ' ') sent++;
    size_t n = strlen(sent), found = SIZE_MAX;
    if (n > MAX_KEY_BYTES) return NULL;
    digest(sent, n, d);
    for (size_t i = 0; i < a->n; i++)
        if (CRYPTO_memcmp(d, a->keys[i].digest, sizeof d) == 0) found = i;
    return found < a->n ? &a->keys[found] : NULL;
}

const char *auth_name(const struct auth_key *k) { return k->name; }

int auth_enter(struct auth *a, struct auth_key *k, int *retry_s, struct err *e) {
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    int64_t now = clock_ns();
    if (k->per_minute) {
        k->tokens += (double)(now - k->filled_ns) * 1e-9 * (double)k->per_minute / 60;
        if (k->tokens > (double)k->per_minute) k->tokens = (double)k->per_minute;
        k->filled_ns = now;
    }
    *retry_s = 1;
    if (k->max_parallel && k->n_running >= k->max_parallel) {
        rc = err_set(e, CHIMERE_EBUSY, "this key may have %lld requests at once",
                     (long long)k->max_parallel);
    } else if (k->per_minute && k->tokens < 1) {
        *retry_s = 1 + (int)((1 - k->tokens) * 60 / (double)k->per_minute);
        rc = err_set(e, CHIMERE_EBUSY, "this key may send %lld requests a minute",
                     (long long)k->per_minute);
    } else {
        k->n_running++;
        if (k->per_minute) k->tokens -= 1;
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void auth_leave(struct auth *a, struct auth_key *k) {
    pthread_mutex_lock(&a->lock);
    k->n_running--;
    pthread_mutex_unlock(&a->lock);
}
