#include "serve/http/auth.h"

#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/store.h"

enum { MAX_KEYS = 4096, MAX_KEY_BYTES = 512, DAY_MS = 86400000 };

struct auth_key {
    unsigned char digest[AUTH_HASH_BYTES];
    char name[STORE_MAX_NAME + 1];
    int64_t id; /* row in the store; 0: the key is from the file */
    bool removed, seen, is_admin;
    int64_t expires_ms;                               /* 0: never */
    int64_t max_parallel, per_minute, tokens_per_day; /* 0: no limit */
    int64_t n_running;
    double tokens; /* current content of the token bucket of per_minute */
    int64_t filled_ns;
    int64_t day, day_tokens; /* day: days since 1970 (UTC); day_tokens: tokens used on that day */
};

struct auth {
    pthread_mutex_t lock;  /* guards all fields below */
    struct auth_key *keys; /* owned [n], allocated for MAX_KEYS: keys never move */
    size_t n;
    bool full;           /* the limit was already reported in the log */
    struct store *store; /* borrowed, or NULL */
    int64_t version;     /* version of the store when it was last read */
};

void auth_hash(const char *secret, unsigned char out[AUTH_HASH_BYTES]) {
    digest_of(secret, strlen(secret), out);
}

void auth_secret(char out[AUTH_SECRET_BYTES]) {
    int n = snprintf(out, AUTH_SECRET_BYTES, "sk-chimere-");
    for (int i = 0; i < 4; i++)
        n += snprintf(out + n, AUTH_SECRET_BYTES - (size_t)n, "%016llx",
                      (unsigned long long)rng_entropy());
}

void auth_identity(const unsigned char hash[AUTH_HASH_BYTES], char out[AUTH_IDENTITY_BYTES]) {
    int n = snprintf(out, AUTH_IDENTITY_BYTES, "key-");
    for (int i = 0; i < 8; i++)
        n += snprintf(out + n, AUTH_IDENTITY_BYTES - (size_t)n, "%02x", hash[i]);
}

/* ---- keys of the file ---- */

/* Reads one word after the key in a line. */
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
    } else if (strcmp(word, "admin") == 0) {
        k->is_admin = true;
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
    auth_hash(word, k->digest);
    snprintf(k->name, sizeof k->name, "key-%zu", a->n);
    k->filled_ns = clock_ns();
    int rc = 0;
    while (!rc && (word = strtok_r(NULL, " \t\r", &save))) rc = read_word(k, word, line, e);
    return rc;
}

static int read_file(struct auth *a, const char *text, struct err *e) {
    char *copy = mem_strdup(text), *save = NULL;
    if (!copy) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    size_t line = 1;
    for (char *at = strtok_r(copy, "\n", &save); at && !rc; at = strtok_r(NULL, "\n", &save))
        rc = read_line(a, at, line++, e);
    if (!rc && !a->n) rc = err_set(e, CHIMERE_EINVAL, "api keys: the file names none");
    digest_wipe(copy, strlen(text));
    mem_free(copy);
    return rc;
}

/* ---- keys of the store ---- */

static int64_t today(void) { return store_now_ms() / DAY_MS; }

/* Reads from the store what a key has used since midnight, so that the count survives a restart. */
static void count_today(struct auth *a, struct auth_key *k) {
    struct store_usage u;
    k->day = today();
    k->day_tokens = 0;
    if (!store_usage_since(a->store, k->id, k->day * DAY_MS, &u, NULL))
        k->day_tokens = u.n_prompt + u.n_generated;
}

/* Called with the locks of auth and of the store held: only copies a row, because it may not call the store. */
static int take_row(void *ud, const struct store_key *row) {
    struct auth *a = ud;
    size_t i = 0;
    while (i < a->n && (!a->keys[i].id || a->keys[i].id != row->id)) i++;
    if (i == MAX_KEYS) {
        if (!a->full) log_warn("api keys: more than %d: the others are not known", MAX_KEYS);
        a->full = true;
        return 0;
    }
    struct auth_key *k = &a->keys[i];
    if (i == a->n) {
        *k = (struct auth_key){.id = row->id, .day = -1, .filled_ns = clock_ns()};
        snprintf(k->name, sizeof k->name, "%s", row->name);
        a->n++;
    }
    /* the name of a removed key may be used again */
    memcpy(k->digest, row->hash, sizeof k->digest);
    if (k->per_minute != row->per_minute) k->tokens = (double)row->per_minute;
    k->seen = true;
    k->removed = row->revoked;
    k->is_admin = row->is_admin;
    k->expires_ms = row->expires_ms;
    k->max_parallel = row->max_active;
    k->per_minute = row->per_minute;
    k->tokens_per_day = row->tokens_per_day;
    return 0;
}

static int read_store(struct auth *a, struct err *e) {
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->n; i++) a->keys[i].seen = false;
    int rc = store_key_list(a->store, take_row, a, e);
    for (size_t i = 0; i < a->n && !rc; i++) {
        struct auth_key *k = &a->keys[i];
        if (k->id && !k->seen) k->removed = true;
        if (k->id && k->day < 0) count_today(a, k);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void auth_refresh(struct auth *a) {
    int64_t version = a->store ? store_version(a->store) : 0;
    struct err e = {0};
    if (version == a->version) return;
    a->version = version;
    if (read_store(a, &e)) log_warn("api keys: %s", e.text);
}

int auth_reread(struct auth *a, struct err *e) { return a->store ? read_store(a, e) : 0; }

/* ---- open and close ---- */

int auth_open(struct auth **out, const char *text, struct store *s, struct err *e) {
    struct auth *a = mem_zalloc(sizeof *a);
    *out = NULL;
    if (a) a->keys = mem_alloc_array(MAX_KEYS, sizeof *a->keys);
    if (!a || !a->keys) {
        mem_free(a);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    pthread_mutex_init(&a->lock, NULL);
    a->store = s;
    a->version = s ? store_version(s) : 0;
    int rc = text ? read_file(a, text, e) : 0;
    if (!rc && s) rc = read_store(a, e);
    if (rc) auth_close(a);
    else *out = a;
    return rc;
}

void auth_close(struct auth *a) {
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    mem_free(a->keys);
    mem_free(a);
}

/* ---- reload of the file ---- */

/* Finds the key with k's digest among the first n that are from the file. Call with the lock held. */
static struct auth_key *find_of_file(struct auth *a, size_t n, const struct auth_key *k) {
    for (size_t i = 0; i < n; i++)
        if (!a->keys[i].id && memcmp(a->keys[i].digest, k->digest, sizeof k->digest) == 0)
            return &a->keys[i];
    return NULL;
}

/* Call with the lock held. It counts the new keys first, so that it either succeeds or changes nothing. */
static int take_file(struct auth *a, const struct auth *read, struct err *e) {
    size_t n_old = a->n, n_new = 0;
    for (size_t i = 0; i < read->n; i++) n_new += !find_of_file(a, n_old, &read->keys[i]);
    if (n_old + n_new > MAX_KEYS)
        return err_set(e, CHIMERE_ELIMIT,
                       "api keys: expected at most %d since the start, removed ones too", MAX_KEYS);
    for (size_t i = 0; i < n_old; i++)
        if (!a->keys[i].id) a->keys[i].removed = true;
    for (size_t i = 0; i < read->n; i++) {
        const struct auth_key *k = &read->keys[i];
        struct auth_key *old = find_of_file(a, n_old, k);
        if (!old) {
            a->keys[a->n++] = *k;
            continue;
        }
        if (old->per_minute != k->per_minute) old->tokens = (double)k->per_minute;
        old->removed = false;
        old->is_admin = k->is_admin;
        old->max_parallel = k->max_parallel;
        old->per_minute = k->per_minute;
    }
    return 0;
}

int auth_reload(struct auth *a, const char *text, struct err *e) {
    struct auth *read = NULL;
    int rc = auth_open(&read, text, NULL, e);
    if (rc) return rc;
    pthread_mutex_lock(&a->lock);
    rc = take_file(a, read, e);
    pthread_mutex_unlock(&a->lock);
    auth_close(read);
    return rc;
}

/* ---- requests ---- */

bool auth_is_needed(struct auth *a) {
    pthread_mutex_lock(&a->lock);
    bool needed = a->n > 0;
    pthread_mutex_unlock(&a->lock);
    return needed;
}

struct auth_key *auth_find(struct auth *a, const char *sent, struct auth_who *who) {
    unsigned char d[AUTH_HASH_BYTES];
    if (!sent) return NULL;
    if (strncasecmp(sent, "bearer ", 7) == 0) sent += 7;
    while (*sent == ' ') sent++;
    if (strlen(sent) > MAX_KEY_BYTES) return NULL;
    auth_hash(sent, d);
    int64_t now = store_now_ms();
    struct auth_key *found = NULL;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->n; i++) {
        struct auth_key *k = &a->keys[i];
        bool same = digest_equal(d, k->digest, sizeof d);
        if (same && !k->removed && (!k->expires_ms || k->expires_ms > now)) found = k;
    }
    if (found) {
        auth_identity(found->digest, who->identity);
        who->is_admin = found->is_admin;
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

const char *auth_name(const struct auth_key *k) { return k->name; }
int64_t auth_id(const struct auth_key *k) { return k->id; }

/* Call with the lock held. */
static int check_limits(struct auth_key *k, int *retry_s, struct err *e) {
    int64_t now = clock_ns(), day = today();
    if (k->per_minute) {
        k->tokens += (double)(now - k->filled_ns) * 1e-9 * (double)k->per_minute / 60;
        if (k->tokens > (double)k->per_minute) k->tokens = (double)k->per_minute;
        k->filled_ns = now;
    }
    if (k->day != day) {
        k->day = day;
        k->day_tokens = 0;
    }
    *retry_s = 1;
    if (k->max_parallel && k->n_running >= k->max_parallel)
        return err_set(e, CHIMERE_EBUSY, "this key may have %lld concurrent requests",
                       (long long)k->max_parallel);
    if (k->tokens_per_day && k->day_tokens >= k->tokens_per_day) {
        *retry_s = (int)(((day + 1) * DAY_MS - store_now_ms()) / 1000 + 1);
        return err_set(e, CHIMERE_EBUSY, "this key may use %lld tokens per day (UTC)",
                       (long long)k->tokens_per_day);
    }
    if (k->per_minute && k->tokens < 1) {
        *retry_s = 1 + (int)((1 - k->tokens) * 60 / (double)k->per_minute);
        return err_set(e, CHIMERE_EBUSY, "this key may send %lld requests per minute",
                       (long long)k->per_minute);
    }
    if (k->per_minute) k->tokens -= 1;
    k->n_running++;
    *retry_s = 0;
    return 0;
}

int auth_enter(struct auth *a, struct auth_key *k, int *retry_s, struct err *e) {
    pthread_mutex_lock(&a->lock);
    int rc = check_limits(k, retry_s, e);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void auth_leave(struct auth *a, struct auth_key *k) {
    pthread_mutex_lock(&a->lock);
    k->n_running--;
    pthread_mutex_unlock(&a->lock);
}

void auth_spend(struct auth *a, struct auth_key *k, int64_t n_tok) {
    pthread_mutex_lock(&a->lock);
    k->day_tokens += n_tok;
    pthread_mutex_unlock(&a->lock);
}
