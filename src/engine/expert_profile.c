#include "engine/expert_profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "model/experts/experts.h"

enum { VERSION = 1, HEAD = 32, WRITE_EACH_S = 600, MAX_BYTES = 64 << 20 };
static const char MAGIC[8] = {'C', 'H', 'I', 'M', 'E', 'X', 'P', 'R'};

struct expert_profile {
    const struct expert_store *experts; /* borrowed */
    struct expert_uses before, now;     /* n owned: as read from the file; what is written */
    int32_t n_used;
    uint64_t n_written; /* uses in the experts' counters when the file was written last */
    char path[4096];
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards quit */
    pthread_cond_t wake;
    bool quit;
};

/* ---- the file ---- */

static size_t n_uses(const struct expert_uses *u) { return (size_t)u->n_layer * u->n_expert; }

static void fill_head(const struct expert_uses *u, uint32_t crc, unsigned char h[HEAD]) {
    const uint32_t version = VERSION;
    memcpy(h, MAGIC, 8);
    memcpy(h + 8, &version, 4);
    memcpy(h + 12, &crc, 4);
    memcpy(h + 16, &u->hash, 8);
    memcpy(h + 24, &u->n_layer, 4);
    memcpy(h + 28, &u->n_expert, 4);
}

int expert_uses_read(const char *path, const struct expert_uses *u, struct err *e) {
    unsigned char want[HEAD];
    char *got;
    size_t n, bytes = n_uses(u) * sizeof *u->n;
    if (!file_exists(path)) return err_set(e, CHIMERE_ENOENT, "%s: no such file", path);
    int rc = file_read(path, MAX_BYTES, &got, &n, e);
    if (rc) return rc;
    uint32_t crc = 0;
    if (n >= HEAD) memcpy(&crc, got + 12, 4);
    fill_head(u, crc, want);
    if (n < HEAD || memcmp(got, want, 12) != 0 || hash_crc32c(0, got + 16, n - 16) != crc)
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected uses of experts, got a damaged file", path);
    else if (memcmp(got, want, HEAD) != 0 || n != HEAD + bytes)
        rc = err_set(e, CHIMERE_EMISMATCH,
                     "%s: expected uses of %u layers of %u experts of this "
                     "model, got those of another",
                     path, u->n_layer, u->n_expert);
    else memcpy(u->n, got + HEAD, bytes);
    mem_free(got);
    return rc;
}

int expert_uses_write(const char *path, const struct expert_uses *u, struct err *e) {
    size_t bytes = n_uses(u) * sizeof *u->n;
    unsigned char *all = mem_alloc(HEAD + bytes);
    if (!all) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    fill_head(u, 0, all);
    memcpy(all + HEAD, u->n, bytes);
    fill_head(u, hash_crc32c(0, all + 16, HEAD + bytes - 16), all);
    int rc = file_write(path, all, HEAD + bytes, e);
    mem_free(all);
    return rc;
}

/* ---- the profile ---- */

/* Returns the uses in the experts' counters; adds them to the decayed ones that were read, in p->now. */
static uint64_t add_up(struct expert_profile *p) {
    const uint32_t *own = experts_uses(p->experts);
    uint64_t all = 0;
    for (uint32_t il = 0; il < p->now.n_layer; il++) {
        size_t first = (size_t)il * p->now.n_expert;
        uint64_t sum = 0;
        for (size_t i = first; i < first + p->now.n_expert; i++) {
            p->now.n[i] = __atomic_load_n(&own[i], __ATOMIC_RELAXED);
            sum += p->now.n[i];
        }
        double keep = exp2(-(double)sum / p->n_used / EXPERT_PROFILE_HALF);
        for (size_t i = first; i < first + p->now.n_expert; i++) {
            double n = (double)p->now.n[i] + keep * (double)p->before.n[i];
            p->now.n[i] = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
        }
        all += sum;
    }
    return all;
}

static void write_file(struct expert_profile *p) {
    struct err e;
    uint64_t all = add_up(p);
    if (all == p->n_written) return;
    if (expert_uses_write(p->path, &p->now, &e))
        log_warn("experts: their uses are not kept: %s", e.text);
    p->n_written = all;
}

static void *profile_thread(void *arg) {
    struct expert_profile *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        int64_t until = clock_ns() + WRITE_EACH_S * INT64_C(1000000000);
        while (!p->quit && clock_ns() < until) thread_wait_until(&p->wake, &p->lock, until);
        if (p->quit) break;
        pthread_mutex_unlock(&p->lock);
        write_file(p);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Reads the file and fills the slots or the pool with it. A file that is not there or not usable is no failure. */
static int fill(struct expert_profile *p, struct err *e) {
    struct err why;
    int rc = expert_uses_read(p->path, &p->before, &why);
    if (!rc) return experts_fill(p->experts, p->before.n, e);
    if (rc != CHIMERE_ENOENT) log_warn("experts: their uses are not known: %s", why.text);
    return 0;
}

static int name_file(struct expert_profile *p, const struct model *m, struct layer_part part,
                     struct err *e) {
    char dir[3072] = "";
    int rc = file_user_data("experts", dir, sizeof dir, e);
    if (!rc) rc = file_mkdirs(dir, e);
    snprintf(p->path, sizeof p->path, "%s/%016" PRIx64 "-%d", dir, m->hash, part.first);
    return rc;
}

int expert_profile_open(struct expert_profile **out, struct model *m, struct layer_part part,
                        struct err *e) {
    const struct expert_store *experts = &m->weights.experts;
    struct err why;
    *out = NULL;
    if (!experts_uses(experts)) return 0;
    struct expert_profile *p = mem_zalloc(sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    *p = (struct expert_profile){.experts = experts, .n_used = m->hp.moe.n_used};
    p->before = p->now =
        (struct expert_uses){m->hash, (uint32_t)m->hp.n_layer, (uint32_t)m->hp.moe.n_expert, NULL};
    pthread_mutex_init(&p->lock, NULL);
    thread_cond_init(&p->wake);
    if (name_file(p, m, part, &why)) {
        log_warn("experts: their uses are not kept: %s", why.text);
        expert_profile_close(p);
        return 0;
    }
    p->before.n = mem_alloc_array(n_uses(&p->before), sizeof *p->before.n);
    p->now.n = mem_alloc_array(n_uses(&p->now), sizeof *p->now.n);
    int rc = p->before.n && p->now.n ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = fill(p, e);
    if (!rc) p->has_thread = !pthread_create(&p->thread, NULL, profile_thread, p);
    if (!rc && !p->has_thread) rc = err_set(e, CHIMERE_ENOMEM, "cannot start a thread");
    if (rc) expert_profile_close(p);
    else *out = p;
    return rc;
}

void expert_profile_close(struct expert_profile *p) {
    if (!p) return;
    if (p->has_thread) {
        pthread_mutex_lock(&p->lock);
        p->quit = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        write_file(p);
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    mem_free(p->before.n);
    mem_free(p->now.n);
    mem_free(p);
}
