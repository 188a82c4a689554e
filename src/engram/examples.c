#include "engram/examples.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

/* The index of one domain. */
struct shelf {
    char domain[EXAMPLES_MAX_NAME + 1];
    struct engram_vec *vec; /* owned; NULL: not built yet */
    int64_t n_change;       /* change counter of the store when the index was last updated */
    int64_t *ids;           /* owned [n_id]: ids in the index, ascending */
    int64_t n_id, n_made;   /* n_made: number of vectors when its cells were computed */
};

struct examples {
    struct store *store; /* borrowed */
    uint64_t embedder;
    int32_t n_dim;
    /* protects shelves: searching takes it for reading, updating for writing */
    pthread_rwlock_t lock;
    struct shelf shelves[EXAMPLES_MAX_DOMAINS];
    int32_t n_shelf;
};

int examples_open(struct examples **out, struct store *store, uint64_t embedder, int32_t n_dim,
                  struct err *e) {
    *out = NULL;
    if (n_dim < 1 || n_dim > ENGRAM_VEC_MAX_DIM)
        return err_set(e, CHIMERE_EINVAL, "examples: expected vectors of 1 to %d values, got %d",
                       (int)ENGRAM_VEC_MAX_DIM, n_dim);
    struct examples *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    x->store = store;
    x->embedder = embedder;
    x->n_dim = n_dim;
    pthread_rwlock_init(&x->lock, NULL);
    *out = x;
    return 0;
}

void examples_close(struct examples *x) {
    if (!x) return;
    for (int32_t i = 0; i < x->n_shelf; i++) {
        engram_vec_free(x->shelves[i].vec);
        mem_free(x->shelves[i].ids);
    }
    pthread_rwlock_destroy(&x->lock);
    mem_free(x);
}

/* ---- checks ---- */

static int check_domain(const char *domain, struct err *e) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = domain ? strlen(domain) : 0;
    if (n < 1 || n > EXAMPLES_MAX_NAME || strspn(domain, allowed) != n)
        return err_set(e, CHIMERE_EINVAL,
                       "domain: expected letters, digits, '-', '_' and '.', at most %d",
                       (int)EXAMPLES_MAX_NAME);
    return 0;
}

static int check_vector(const struct examples *x, const float *v, struct err *e) {
    double sum = 0;
    for (int32_t i = 0; i < x->n_dim; i++) sum += (double)v[i] * (double)v[i];
    if (!(fabs(sum - 1) < 1e-2))
        return err_set(e, CHIMERE_EINVAL, "examples: expected a vector of length 1, got %.4g",
                       sqrt(sum));
    return 0;
}

static int check_text(const char *what, const char *text, struct err *e) {
    size_t n = text ? strlen(text) : 0;
    if (n < 1 || n > EXAMPLES_MAX_TEXT || !utf8_is_valid(text, n))
        return err_set(e, CHIMERE_EINVAL, "%s: expected text in UTF-8 of 1 to %d bytes", what,
                       (int)EXAMPLES_MAX_TEXT);
    return 0;
}

/* ---- changes ---- */

int examples_check(const struct store_example *v, struct err *e) {
    int rc = check_domain(v->domain, e);
    if (!rc) rc = check_text("question", v->question, e);
    if (!rc) rc = check_text("answer", v->answer, e);
    if (!rc && v->source && *v->source) rc = check_text("source", v->source, e);
    if (!rc && !isfinite(v->score))
        rc = err_set(e, CHIMERE_EINVAL, "score: expected a finite number");
    return rc;
}

int examples_add(struct examples *x, struct store_example *v, size_t n, const float *vecs,
                 int64_t *ids, struct err *e) {
    struct store_example_state state;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        v[i].embedder = x->embedder;
        v[i].vec = vecs + i * (size_t)x->n_dim;
        v[i].n_vec = x->n_dim;
        rc = examples_check(&v[i], e);
        if (!rc) rc = check_vector(x, v[i].vec, e);
        if (rc || (i && !strcmp(v[i].domain, v[i - 1].domain))) continue;
        /* Every change increments the counter, so the examples of a domain are counted only if it had many
         * changes. */
        rc = store_example_state(x->store, v[i].domain, x->embedder, false, &state, e);
        if (!rc && state.n_change + (int64_t)n > EXAMPLES_MAX_COUNT)
            rc = store_example_state(x->store, v[i].domain, x->embedder, true, &state, e);
        if (!rc && state.n + (int64_t)n > EXAMPLES_MAX_COUNT)
            rc = err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d examples", v[i].domain,
                         (int)EXAMPLES_MAX_COUNT);
    }
    return rc ? rc : store_example_put(x->store, v, n, ids, e);
}

int examples_remove(struct examples *x, const char *domain, int64_t id, struct err *e) {
    int rc = check_domain(domain, e);
    return rc ? rc : store_example_remove(x->store, domain, id, e);
}

/* ---- the index ---- */

struct loading {
    const struct examples *x;
    int64_t *ids; /* owned [cap] */
    float *vecs;  /* owned [cap, n_dim] */
    int64_t n, cap;
    bool with_vec;
};

/* Adds a row's vector. A row whose vector does not have this embedder's size comes from a forged file. */
static int take_vector(void *ud, const struct store_example *row) {
    struct loading *l = ud;
    if (l->with_vec && (!row->vec || row->n_vec != l->x->n_dim)) return 0;
    if (l->n == EXAMPLES_MAX_COUNT) return CHIMERE_ELIMIT;
    if (l->n == l->cap) {
        int64_t cap = l->cap ? 2 * l->cap : 256;
        int64_t *ids = mem_realloc(l->ids, (size_t)cap * sizeof *ids);
        if (!ids) return CHIMERE_ENOMEM;
        l->ids = ids;
        if (l->with_vec) {
            float *v = mem_realloc(l->vecs, (size_t)cap * (size_t)l->x->n_dim * sizeof *v);
            if (!v) return CHIMERE_ENOMEM;
            l->vecs = v;
        }
        l->cap = cap;
    }
    if (l->with_vec)
        memcpy(l->vecs + l->n * l->x->n_dim, row->vec, (size_t)l->x->n_dim * sizeof *row->vec);
    l->ids[l->n++] = row->id;
    return 0;
}

static void loading_fini(struct loading *l) {
    mem_free(l->ids);
    mem_free(l->vecs);
}

static int load(const struct examples *x, const char *domain, int64_t after, bool with_vec,
                struct loading *l, struct err *e) {
    *l = (struct loading){.x = x, .with_vec = with_vec};
    int rc =
        store_example_vectors(x->store, domain, x->embedder, after, with_vec, take_vector, l, e);
    if (rc == CHIMERE_ENOMEM || rc == CHIMERE_ELIMIT)
        err_set(e, rc, "%s: %s", domain,
                rc == CHIMERE_ENOMEM ? "out of memory" : "too many examples");
    if (rc) loading_fini(l);
    return rc;
}

/* Returns the centres from the store, if they are valid: finite, and a whole number of vectors. */
static float *stored_centres(const struct examples *x, const char *domain, int64_t *n) {
    void *data;
    size_t n_bytes, size = (size_t)x->n_dim * sizeof(float);
    *n = 0;
    if (store_example_get_index(x->store, domain, x->embedder, &data, &n_bytes, NULL)) return NULL;
    bool good = data && n_bytes && n_bytes % size == 0 && n_bytes / size <= 1 << 16;
    const float *v = data;
    for (size_t i = 0; good && i < n_bytes / sizeof *v; i++) good = isfinite(v[i]);
    if (!good) {
        mem_free(data);
        return NULL;
    }
    *n = (int64_t)(n_bytes / size);
    return data;
}

/* Builds the index from the store. fresh: also compute new cells. */
static int make(const struct examples *x, struct shelf *s, bool fresh, struct err *e) {
    struct loading l;
    int64_t n_centre = 0;
    int rc = load(x, s->domain, 0, true, &l, e);
    if (rc) return rc;
    float *centres =
        fresh || l.n <= ENGRAM_VEC_EXACT ? NULL : stored_centres(x, s->domain, &n_centre);
    int64_t right = (int64_t)(2 * sqrt((double)l.n));
    if (centres && (n_centre > 2 * right || 2 * n_centre < right))
        n_centre = 0; /* the centres are from an index of a very different size */
    struct engram_vec *vec;
    rc = engram_vec_new_with_ids(&vec, l.vecs, l.ids, l.n, x->n_dim, n_centre ? centres : NULL,
                                 n_centre, e);
    if (!rc) {
        engram_vec_free(s->vec);
        s->vec = vec;
        mem_free(s->ids);
        s->ids = l.ids;
        l.ids = NULL;
        s->n_id = s->n_made = l.n;
        int64_t n_new;
        const float *found = engram_vec_centres(vec, &n_new);
        /* if the store cannot be written to, the next start computes the centres again */
        if (found && !n_centre)
            store_example_put_index(x->store, s->domain, x->embedder, found,
                                    (size_t)n_new * (size_t)x->n_dim * sizeof *found, NULL);
    }
    mem_free(centres);
    loading_fini(&l);
    return rc;
}

/* Removes those ids from the index that are no longer in the store. The remaining ids stay in order. */
static int drop_gone(const struct examples *x, struct shelf *s, struct err *e) {
    struct loading now;
    int rc = load(x, s->domain, 0, false, &now, e);
    if (rc) return rc;
    int64_t n_gone = 0, n_kept = 0;
    int64_t *gone = mem_alloc_array((size_t)s->n_id + 1, sizeof *gone);
    if (!gone) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int64_t i = 0, k = 0; !rc && i < s->n_id; i++) {
        while (k < now.n && now.ids[k] < s->ids[i]) k++;
        if (k == now.n || now.ids[k] != s->ids[i]) gone[n_gone++] = s->ids[i];
    }
    if (!rc && n_gone) rc = engram_vec_remove(s->vec, gone, n_gone, e);
    for (int64_t i = 0, k = 0; !rc && n_gone && i < s->n_id; i++) {
        if (k < n_gone && gone[k] == s->ids[i]) k++;
        else s->ids[n_kept++] = s->ids[i];
    }
    if (!rc && n_gone) s->n_id = n_kept;
    mem_free(gone);
    loading_fini(&now);
    return rc;
}

static int add_new(const struct examples *x, struct shelf *s, struct err *e) {
    struct loading l;
    int rc = load(x, s->domain, s->n_id ? s->ids[s->n_id - 1] : 0, true, &l, e);
    if (rc || !l.n) {
        if (!rc) loading_fini(&l);
        return rc;
    }
    int64_t *ids = mem_realloc(s->ids, (size_t)(s->n_id + l.n) * sizeof *ids);
    if (!ids) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else s->ids = ids;
    if (!rc) rc = engram_vec_add(s->vec, l.vecs, l.ids, l.n, e);
    if (!rc) {
        memcpy(s->ids + s->n_id, l.ids, (size_t)l.n * sizeof *ids);
        s->n_id += l.n;
    }
    loading_fini(&l);
    return rc;
}

/* Updates a shelf; call it with the lock held for writing. If this fails halfway, the next search rebuilds the
 * index. */
static int refresh(const struct examples *x, struct shelf *s, int64_t n_change, struct err *e) {
    struct store_example_state state;
    int rc = 0;
    if (s->vec) {
        rc = add_new(x, s, e);
        if (!rc) rc = store_example_state(x->store, s->domain, x->embedder, true, &state, e);
        if (!rc && state.n != s->n_id) rc = drop_gone(x, s, e);
        if (rc) {
            engram_vec_free(s->vec);
            s->vec = NULL;
            return rc;
        }
    }
    bool outgrown = s->vec && s->n_id > ENGRAM_VEC_EXACT && s->n_id > 2 * s->n_made;
    if (!s->vec || outgrown) rc = make(x, s, outgrown, e);
    /* read before the update, so the next search sees changes since then */
    if (!rc) s->n_change = n_change;
    return rc;
}

/* Returns the updated shelf of a domain with the lock held for reading. If the domain is empty, *out is NULL and
 * the lock is not held. */
static int shelf_of(struct examples *x, const char *domain, struct shelf **out, struct err *e) {
    struct store_example_state state;
    *out = NULL;
    int rc = store_example_state(x->store, domain, x->embedder, false, &state, e);
    if (rc || !state.n_change) return rc;
    for (int pass = 0; !rc; pass++) {
        struct shelf *s = NULL;
        if (pass % 2) pthread_rwlock_wrlock(&x->lock);
        else pthread_rwlock_rdlock(&x->lock);
        for (int32_t i = 0; i < x->n_shelf && !s; i++)
            if (!strcmp(x->shelves[i].domain, domain)) s = &x->shelves[i];
        if (pass % 2) {
            if (!s && x->n_shelf < EXAMPLES_MAX_DOMAINS) {
                s = &x->shelves[x->n_shelf++];
                memcpy(s->domain, domain, strlen(domain) + 1);
            }
            if (!s)
                rc = err_set(e, CHIMERE_ELIMIT, "examples: expected at most %d domains",
                             (int)EXAMPLES_MAX_DOMAINS);
            else if (!s->vec || s->n_change < state.n_change) rc = refresh(x, s, state.n_change, e);
        } else if (s && s->vec && s->n_change >= state.n_change) {
            *out = s;
            return 0;
        }
        pthread_rwlock_unlock(&x->lock);
    }
    return rc;
}

/* ---- searching ---- */

static int fill_hit(void *ud, const struct store_example *row) {
    struct examples_hit *h = ud;
    h->id = row->id;
    h->at_ms = row->at_ms;
    h->score = row->score;
    h->question = mem_strdup(row->question);
    h->answer = mem_strdup(row->answer);
    h->source = mem_strdup(row->source);
    return h->question && h->answer && h->source ? 0 : CHIMERE_ENOMEM;
}

void examples_hits_fini(struct examples_hits *h) {
    for (int32_t i = 0; i < h->n; i++) {
        mem_free(h->v[i].question);
        mem_free(h->v[i].answer);
        mem_free(h->v[i].source);
    }
    h->n = 0;
}

int examples_search(struct examples *x, const char *domain, const float *query, int32_t k,
                    float least, struct examples_hits *out, struct err *e) {
    int64_t ids[EXAMPLES_MAX_HITS];
    float products[EXAMPLES_MAX_HITS];
    struct shelf *s;
    out->n = 0;
    if (k < 1 || k > EXAMPLES_MAX_HITS)
        return err_set(e, CHIMERE_EINVAL, "examples: expected 1 to %d to search, got %d",
                       (int)EXAMPLES_MAX_HITS, k);
    int rc = check_domain(domain, e);
    if (!rc) rc = check_vector(x, query, e);
    if (!rc) rc = shelf_of(x, domain, &s, e);
    if (rc || !s) return rc;
    rc = engram_vec_search(s->vec, query, k, ids, products, e);
    pthread_rwlock_unlock(&x->lock);
    for (int32_t i = 0; i < k && !rc && ids[i] >= 0 && products[i] >= least; i++) {
        struct examples_hit *h = &out->v[out->n];
        *h = (struct examples_hit){.nearness = products[i]};
        rc = store_example_one(x->store, ids[i], fill_hit, h, e);
        if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
        if (h->id) out->n++; /* otherwise the example was removed meanwhile */
    }
    if (rc) examples_hits_fini(out);
    return rc;
}
