/* tier.c: the pool of experts in memory, the directories that map experts to it, and the reads that fill it. */
#include "model/experts/tier.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/reader.h"
#include "base/thread.h"
#include "format/quant.h"
#include "kernels/cpu/gemm/repack.h"
#include "model/experts/experts_share.h"

enum {
    UNIT = 64, /* bytes per place unit; records and their parts are multiples */
    MAX_LOADS = 32,
    GROUP = 16, /* experts that a long batch computes at once, while the next are read */
    /* experts that the fill at the start reads at a time, if no batch has run lately, and between steps */
    FILL_LOADS = 4,
    FILL_STEP_LOADS = 1,
    LATELY_MS = 50,
};
/* Each doubling of its use count keeps an expert COUNT_WEIGHT tokens longer. Counts halve in COUNT_HALF tokens. */
static const double COUNT_WEIGHT = 4, COUNT_HALF = 256;

struct part {
    struct weight file; /* one expert's, in the file's form; the reader sets data */
    bool is_packed;
    uint32_t i_file;
    uint64_t offset, distance; /* of expert 0 in the file; between experts */
    size_t at, bytes;          /* within the record */
    const char *name;          /* view of the file's directory */
};

struct layer {
    struct part part[3];
    int32_t n_part, n_slot, n_free; /* n_free: slots never filled yet, at the end */
    int32_t n_lent;                 /* slots in lent pages, after the others */
    size_t record;                  /* bytes */
    size_t *at;                     /* owned [n_expert]: of each slot within the pool */
    uint32_t *parts;                /* owned [n_expert]: those that a slot in lent pages touches */
    int32_t *slot;                  /* owned [n_expert]: -1: not in the pool */
    int32_t *expert;                /* owned [n_expert], by slot: -1: none */
    struct load **load;             /* owned [n_expert]: the load that fills a slot; NULL: none */
    int64_t *last;                  /* owned [n_expert]: token of the last use */
    float *count;                   /* owned [n_expert]: uses, as of `last` */
    int64_t clock;                  /* tokens processed */
};

struct load {
    struct tier *t;
    struct layer *l;
    int32_t expert, slot, n_left; /* n_left: pieces not processed */
    bool is_used;
    bool is_fill;   /* fill_thread waits for it and frees it */
    bool is_wanted; /* a batch needs it */
    bool has_ended;
    struct reader_piece piece[3];
};

struct tier {
    int32_t n_expert, n_used, n_layer;
    char *pool; /* owned by d: records, then the room for pages */
    size_t pool_bytes, room_bytes;
    const void *owner; /* of the room; NULL: none */
    bool room_used;    /* not zero any more */
    struct dev *d;
    struct reader *reader; /* owned */
    struct layer *layers;  /* owned [n_layer] */
    struct load *loads;    /* owned [MAX_LOADS] */

    pthread_mutex_t lock; /* protects everything below, and the directory */
    uint32_t lent;        /* parts of pages whose slots are used */
    int32_t *want,
        /* owned [n_expert]: wanted experts in ascending order; index of each in want, -1: not wanted */
        *rank;
    int64_t *used_at;   /* owned [n_expert]: last token of the batch that uses it */
    float *uses;        /* owned [n_expert]: in this batch */
    int32_t *place;     /* owned [n_expert]: for compute */
    int32_t *early;     /* owned [n_expert]: for MOE_EARLY */
    uint32_t *all_uses; /* owned [n_layer, n_expert]: since the start; read without the lock */
    struct tier_stats stats;
    struct err err;      /* first error of this pass */
    struct err fill_err; /* of the fill */
    int64_t ran_ns;      /* end of the last tier_run */
    bool ran_long;       /* its batch was longer than a step */
    bool quits;
    pthread_cond_t wake; /* quits was set */
    pthread_t filler;
    bool has_filler;

    pthread_mutex_t shown_lock; /* held only briefly, while `lock` is held for a whole layer */
    struct tier_stats shown;    /* stats after the last pass */
};

/* ---- sizes ---- */

static size_t rounded(size_t n) { return (n + UNIT - 1) / UNIT * UNIT; }

static struct weight one_of(const struct weight *w) {
    struct weight one = *w;
    one.n_mat = 1;
    return one;
}

static size_t part_bytes(struct dev *d, const struct weight *w, bool *is_packed) {
    struct weight one = one_of(w);
    size_t n = d->ops->prepared_bytes(d, &one);
    *is_packed = n > 0;
    return n ? n : w->row_bytes * (size_t)w->n_out;
}

size_t tier_record_bytes(struct dev *d, const struct weight *const part[3]) {
    size_t n = 0;
    bool is_packed;
    for (int i = 0; i < 3; i++)
        if (part[i] && part[i]->n_out) n += rounded(part_bytes(d, part[i], &is_packed));
    return n;
}

size_t tier_own_bytes(size_t most_part_bytes) { return reader_bytes(most_part_bytes); }

/* ---- setup ---- */

static int bind_part(struct tier *t, struct layer *l, const struct gguf *g, struct weight *w,
                     struct err *e) {
    struct part *p = &l->part[l->n_part++];
    const struct gguf_tensor *from = NULL;
    const unsigned char *at = w->data;
    for (size_t i = 0; i < gguf_n_tensors(g) && !from; i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        if (at >= x->data && at < x->data + x->n_bytes) from = x;
    }
    if (!from) return err_set(e, CHIMERE_EINTERNAL, "experts: expected rows of one tensor");
    *p = (struct part){.file = one_of(w),
                       .i_file = from->file,
                       .offset = from->offset + (uint64_t)(at - from->data),
                       .distance = w->mat_bytes,
                       .at = l->record,
                       .name = from->name};
    p->bytes = part_bytes(t->d, w, &p->is_packed);
    l->record += rounded(p->bytes);
    return 0;
}

static int alloc_layer(struct tier *t, struct layer *l, size_t base, struct err *e) {
    size_t n = (size_t)t->n_expert;
    l->at = mem_alloc_array(n, sizeof *l->at);
    l->parts = mem_alloc_array(n, sizeof *l->parts);
    l->slot = mem_alloc_array(n, sizeof *l->slot);
    l->last = mem_alloc_array(n, sizeof *l->last);
    l->count = mem_alloc_array(n, sizeof *l->count);
    l->expert = mem_alloc_array(n, sizeof *l->expert);
    l->load = mem_alloc_array(n, sizeof *l->load);
    if (!l->at || !l->parts || !l->slot || !l->last || !l->count || !l->expert || !l->load)
        return err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    for (size_t i = 0; i < n; i++) l->slot[i] = l->expert[i] = -1;
    for (size_t i = 0; i < (size_t)l->n_slot; i++) l->at[i] = base + i * l->record;
    l->n_free = l->n_slot;
    return 0;
}

int32_t tier_least_slots(int32_t n_expert, int32_t n_used) {
    int32_t n = n_used > TIER_MIN_SLOTS ? n_used : TIER_MIN_SLOTS;
    return n < n_expert ? n : n_expert;
}

static int32_t least_slots(const struct tier *t) {
    return tier_least_slots(t->n_expert, t->n_used);
}

/* Divides the pool: every layer can hold the same fraction of its experts. */
static int share_pool(struct tier *t, uint64_t pool_bytes, struct err *e) {
    uint64_t all = 0, least = 0, at = 0;
    for (int32_t il = 0; il < t->n_layer; il++) {
        all += (uint64_t)t->layers[il].record * (uint64_t)t->n_expert;
        least += (uint64_t)t->layers[il].record * (uint64_t)least_slots(t);
    }
    if (pool_bytes < least)
        return err_set(e, CHIMERE_ELIMIT,
                       "experts: expected memory of at least %llu bytes for them, got %llu",
                       (unsigned long long)least, (unsigned long long)pool_bytes);
    double share = all ? (double)(pool_bytes - least) / (double)(all > least ? all - least : 1) : 0;
    if (share > 1) share = 1;
    for (int32_t il = 0; il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        if (!l->n_part) continue;
        l->n_slot = least_slots(t) + (int32_t)(share * (t->n_expert - least_slots(t)));
        t->stats.n_slot += (uint64_t)l->n_slot;
        t->stats.n_expert += (uint64_t)t->n_expert;
        int rc = alloc_layer(t, l, (size_t)at, e);
        at += (uint64_t)l->n_slot * l->record;
        if (rc) return rc;
    }
    t->stats.pool_bytes = at;
    t->pool_bytes = at;
    at += t->room_bytes;
    if (at / UNIT > INT32_MAX) return err_set(e, CHIMERE_ELIMIT, "experts: the pool is too large");
    t->pool = t->d->ops->alloc(t->d, at);
    return t->pool ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
}

static int open_reader(struct tier *t, const struct gguf *g, struct err *e) {
    size_t most = 0;
    for (int32_t il = 0; il < t->n_layer; il++)
        for (int32_t i = 0; i < t->layers[il].n_part; i++) {
            const struct weight *w = &t->layers[il].part[i].file;
            size_t n = w->row_bytes * (size_t)w->n_out;
            most = n > most ? n : most;
        }
    int rc = reader_new(&t->reader, most, e);
    for (uint32_t i = 0; !rc && i < gguf_n_files(g); i++)
        rc = reader_add(t->reader, gguf_path(g, i), gguf_file_bytes(g, i), e);
    return rc;
}

/* Places count units from the pool's start, so that the parts of all layers are stacks with a stride of one unit. */
static void name_pool(struct tier *t, const struct layer *l, int32_t i, struct weight *w) {
    const struct part *p = &l->part[i];
    w->data = t->pool + p->at;
    if (p->is_packed) {
        w->layout = PACK_LAYOUT;
        w->stride = UNIT;
    } else {
        w->mat_bytes = UNIT;
    }
}

int tier_new(struct tier **out, const struct hparams *hp, const struct gguf *g, struct dev *d,
             const struct tier_layer_weights *layer, int32_t n_layer, uint64_t pool_bytes,
             uint64_t room_bytes, struct err *e) {
    struct tier *t = *out = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    size_t n = (size_t)hp->moe.n_expert;
    *t = (struct tier){.n_expert = hp->moe.n_expert,
                       .n_used = hp->moe.n_used,
                       .d = d,
                       .room_bytes = (size_t)room_bytes};
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->shown_lock, NULL);
    thread_cond_init(&t->wake);
    t->layers = mem_alloc_array((size_t)n_layer, sizeof *t->layers);
    t->loads = mem_alloc_array(MAX_LOADS, sizeof *t->loads);
    t->want = mem_alloc_array(n, sizeof *t->want);
    t->rank = mem_alloc_array(n, sizeof *t->rank);
    t->used_at = mem_alloc_array(n, sizeof *t->used_at);
    t->uses = mem_alloc_array(n, sizeof *t->uses);
    t->place = mem_alloc_array(n, sizeof *t->place);
    t->early = mem_alloc_array(n, sizeof *t->early);
    t->all_uses = mem_alloc_array((size_t)n_layer * n, sizeof *t->all_uses);
    int rc = 0;
    if (!t->layers || !t->loads || !t->want || !t->rank || !t->used_at || !t->uses || !t->place ||
        !t->early || !t->all_uses)
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    t->n_layer = t->layers ? n_layer : 0;
    for (int32_t il = 0; !rc && il < n_layer; il++)
        for (int i = 0; !rc && i < 3; i++)
            if (layer[il].part[i] && layer[il].part[i]->data)
                rc = bind_part(t, &t->layers[il], g, layer[il].part[i], e);
    if (!rc) rc = share_pool(t, pool_bytes, e);
    if (!rc) rc = open_reader(t, g, e);
    t->shown = t->stats;
    if (rc) {
        tier_free(t);
        *out = NULL;
        return rc;
    }
    for (int32_t il = 0; il < n_layer; il++)
        for (int i = 0, k = 0; i < 3; i++)
            if (layer[il].part[i] && layer[il].part[i]->data)
                name_pool(t, &t->layers[il], k++, layer[il].part[i]);
    return 0;
}

void tier_free(struct tier *t) {
    if (!t) return;
    if (t->has_filler) {
        pthread_mutex_lock(&t->lock);
        t->quits = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->filler, NULL);
    }
    reader_free(t->reader);
    if (t->pool) t->d->ops->free(t->d, t->pool);
    for (int32_t il = 0; il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        mem_free(l->at);
        mem_free(l->parts);
        mem_free(l->slot);
        mem_free(l->last);
        mem_free(l->count);
        mem_free(l->expert);
        mem_free(l->load);
    }
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->shown_lock);
    pthread_cond_destroy(&t->wake);
    mem_free(t->layers);
    mem_free(t->loads);
    mem_free(t->want);
    mem_free(t->rank);
    mem_free(t->used_at);
    mem_free(t->uses);
    mem_free(t->place);
    mem_free(t->early);
    mem_free(t->all_uses);
    mem_free(t);
}

/* ---- reads ---- */

/* Runs on a thread of the reader: converts the file's form to the device's, at its final address. */
static int use_piece(struct reader_piece *piece, const unsigned char *bytes) {
    struct load *x = piece->ud;
    const struct part *p = &x->l->part[piece - x->piece];
    char *to = x->t->pool + x->l->at[x->slot] + p->at;
    struct weight w = p->file;
    w.data = bytes;
    bool is_finite =
        p->is_packed ? repack_tiles(&w, 0, repack_n_tile(w.n_out), (uint8_t *)to)
                     : quant_rows_are_finite(w.type, bytes, (uint64_t)w.n_out, (uint64_t)w.n_in);
    if (!p->is_packed) memcpy(to, bytes, p->bytes);
    if (is_finite) return 0;
    return err_set(&piece->err, CHIMERE_ENUMERIC,
                   "tensor %s: expected finite numbers, got NaN or infinity in expert %d", p->name,
                   x->expert);
}

static struct load *free_load(struct tier *t) {
    for (int i = 0; i < MAX_LOADS; i++)
        if (!t->loads[i].is_used) return &t->loads[i];
    return NULL;
}

static void start_load(struct tier *t, struct layer *l, struct load *x, int32_t expert,
                       int32_t slot) {
    if (l->expert[slot] >= 0) l->slot[l->expert[slot]] = -1;
    l->expert[slot] = expert;
    l->slot[expert] = slot;
    l->load[slot] = x;
    *x = (struct load){
        .t = t, .l = l, .expert = expert, .slot = slot, .n_left = l->n_part, .is_used = true};
    for (int32_t i = 0; i < l->n_part; i++) {
        const struct part *p = &l->part[i];
        x->piece[i] = (struct reader_piece){.file = p->i_file,
                                            .offset = p->offset + (uint64_t)expert * p->distance,
                                            .n = p->file.row_bytes * (size_t)p->file.n_out,
                                            .use = use_piece,
                                            .ud = x};
        t->stats.n_bytes += x->piece[i].n;
        reader_post(t->reader, &x->piece[i]);
    }
}

/* Called after all pieces are done. After a failure the slot is empty, and the batch fails if it needs the expert. */
static void end_load(struct tier *t, struct load *x) {
    struct layer *l = x->l;
    bool failed = false;
    for (int32_t i = 0; i < l->n_part; i++) {
        if (!x->piece[i].err.code) continue;
        struct err *e = x->is_fill && !x->is_wanted ? &t->fill_err : &t->err;
        failed = true;
        if (!e->code) *e = x->piece[i].err;
    }
    l->load[x->slot] = NULL;
    x->has_ended = true;
    x->is_used = x->is_fill;
    if (!failed) return;
    l->slot[x->expert] = -1;
    l->expert[x->slot] = -1;
}

static bool is_ready(struct tier *t, struct layer *l, int32_t expert) {
    int32_t slot = l->slot[expert];
    if (slot < 0) return false;
    struct load *x = l->load[slot];
    for (int32_t i = 0; x && i < l->n_part; i++)
        if (!reader_is_done(t->reader, &x->piece[i])) return false;
    if (x) end_load(t, x);
    return l->slot[expert] >= 0;
}

/* Waits for the load of an expert and ends it; returns false if it failed. */
static bool await(struct tier *t, struct layer *l, int32_t expert) {
    int32_t slot = l->slot[expert];
    struct load *x = slot < 0 ? NULL : l->load[slot];
    for (int32_t i = 0; x && i < l->n_part; i++) reader_wait(t->reader, &x->piece[i]);
    if (x) end_load(t, x);
    return l->slot[expert] >= 0;
}

/* ---- replacement ---- */

static double score(const struct layer *l, int32_t expert) {
    double age = (double)(l->clock - l->last[expert]);
    return (double)l->last[expert] +
           COUNT_WEIGHT * log2(1 + (double)l->count[expert] * exp2(-age / COUNT_HALF));
}

/* Returns a slot for expert want[rank]; -1: none. want[first..busy) are being computed; those from busy on are still
 * needed. force: evict the one that is needed last, if no other can be evicted. */
static int32_t find_slot(const struct tier *t, struct layer *l, int32_t rank, int32_t first,
                         int32_t busy, bool force) {
    if (l->n_free) return l->n_slot - l->n_free--;
    int32_t best = -1, far = -1;
    double low = INFINITY;
    for (int32_t s = 0; s < l->n_slot + l->n_lent; s++) {
        int32_t x = l->expert[s];
        if (l->load[s] || l->parts[s] & ~t->lent) continue;
        if (x < 0) return s;
        int32_t r = t->rank[x];
        if (r < first) { /* not wanted, or already computed */
            double v = score(l, x);
            if (v < low) low = v, best = s;
        } else if (r >= busy && r > rank && (far < 0 || r > t->rank[l->expert[far]])) {
            far = s;
        }
    }
    return best >= 0 ? best : force ? far : -1;
}

/* Starts reads of the missing experts in want[from..n), as far as slots are free. */
static void issue(struct tier *t, struct layer *l, int32_t n, int32_t first, int32_t busy,
                  int32_t from) {
    for (int32_t r = from; r < n; r++) {
        int32_t expert = t->want[r];
        if (l->slot[expert] >= 0) continue;
        struct load *x = free_load(t);
        if (!x) return;
        int32_t slot = find_slot(t, l, r, first, busy, r < from + GROUP / 2);
        if (slot < 0) return;
        start_load(t, l, x, expert, slot);
    }
}

/* Fills want, rank, used_at and uses; counts hits. Returns the number of wanted experts. */
static int32_t list_wanted(struct tier *t, struct layer *l, const int32_t *ids, int32_t n_tok) {
    uint32_t *uses = t->all_uses + (l - t->layers) * t->n_expert;
    int32_t n = 0;
    for (int32_t x = 0; x < t->n_expert; x++) {
        t->rank[x] = -1;
        t->place[x] = t->early[x] = -1;
        t->uses[x] = 0;
    }
    for (int32_t i = 0; i < n_tok; i++)
        for (int32_t k = 0; k < t->n_used; k++) {
            int32_t x = ids[i * t->n_used + k];
            if (x < -1) continue; /* dropped */
            if (x < 0) x = k;     /* a row with NaN uses these experts (moe_args) */
            t->uses[x]++;
            t->used_at[x] = l->clock + i;
        }
    for (int32_t x = 0; x < t->n_expert; x++) {
        if (t->uses[x] == 0) continue;
        double age = (double)(l->clock - l->last[x]);
        l->count[x] = t->uses[x] + l->count[x] * (float)exp2(-age / COUNT_HALF);
        l->last[x] = t->used_at[x];
        t->rank[x] = n;
        t->want[n++] = x;
        __atomic_fetch_add(&uses[x], (uint32_t)t->uses[x], __ATOMIC_RELAXED);
        if (is_ready(t, l, x)) {
            t->stats.n_hit++;
            continue;
        }
        t->stats.n_miss++;
        if (l->slot[x] >= 0) l->load[l->slot[x]]->is_wanted = true; /* the fill reads it already */
    }
    l->clock += n_tok;
    t->stats.n_pass++;
    return n;
}

/* Waits until want[first..last) are loaded. */
static bool await_all(struct tier *t, struct layer *l, int32_t first, int32_t last) {
    int64_t start = 0;
    bool ok = true;
    for (int32_t r = first; r < last && ok; r++) {
        if (is_ready(t, l, t->want[r])) continue;
        if (!start) start = clock_ns();
        ok = await(t, l, t->want[r]);
    }
    if (start) t->stats.wait_ns += clock_ns() - start;
    return ok;
}

static bool is_step(const struct tier *t, const struct layer *l, int32_t n) {
    return n <= l->n_slot && n <= STEP_MAX_TOK * t->n_used;
}

/* Returns the end of the group of experts that starts at want[first]. A step computes all experts at once if the
 * layer's slots suffice. A long batch computes GROUP experts, and further ones that are already present. */
static int32_t group_end(struct tier *t, struct layer *l, int32_t first, int32_t n) {
    int32_t most = l->n_slot / 2 > 0 ? l->n_slot / 2 : 1;
    int32_t each = most < GROUP ? most : GROUP, last = first;
    if (is_step(t, l, n)) return n;
    while (last < n && last - first < each) last++;
    while (last < n && last - first < most && l->slot[t->want[last]] >= 0 &&
           is_ready(t, l, t->want[last]))
        last++;
    return last;
}

static void show(struct tier *t) {
    pthread_mutex_lock(&t->shown_lock);
    t->shown = t->stats;
    pthread_mutex_unlock(&t->shown_lock);
}

static void settle(struct tier *t) {
    for (int i = 0; i < MAX_LOADS; i++)
        if (t->loads[i].is_used) await(t, t->loads[i].l, t->loads[i].expert);
}

/* Loads want[first..last). If reads of later experts occupy all other slots, waits for those reads first. */
static bool gather(struct tier *t, struct layer *l, int32_t n, int32_t first, int32_t last) {
    for (int32_t r = first; r < last; r++) {
        issue(t, l, n, first, last, r);
        if (l->slot[t->want[r]] < 0) {
            settle(t);
            issue(t, l, n, first, last, r);
        }
        if (!await_all(t, l, r, r + 1)) return false;
    }
    return true;
}

static int32_t place_of(const struct layer *l, int32_t expert) {
    return (int32_t)(l->at[l->slot[expert]] / UNIT);
}

/* Computes those of want[0..n) that are present while the others are read. Returns false if there are no others. */
static bool compute_early(struct tier *t, struct layer *l, int32_t n,
                          void (*compute)(void *ud, const struct tier_group *g), void *ud) {
    const struct tier_group g = {.pass = MOE_EARLY, .place = t->early};
    int32_t n_ready = 0;
    for (int32_t r = 0; r < n; r++) {
        int32_t x = t->want[r], slot = l->slot[x];
        if (slot < 0 || l->load[slot]) continue;
        t->early[x] = place_of(l, x);
        n_ready++;
    }
    if (n_ready == n) return false;
    reader_run(t->reader);
    compute(ud, &g);
    return true;
}

int tier_run(struct tier *t, int32_t il, const int32_t *ids, int32_t n_tok,
             void (*compute)(void *ud, const struct tier_group *g), void *ud, struct err *e) {
    struct layer *l = &t->layers[il];
    pthread_mutex_lock(&t->lock);
    t->err.code = 0;
    int32_t n = list_wanted(t, l, ids, n_tok), first = 0;
    while (first < n) {
        issue(t, l, n, first, first, first);
        int32_t last = group_end(t, l, first, n);
        struct tier_group g = {.place = t->place, .early = t->early, .is_last = last == n};
        if (is_step(t, l, n) && compute_early(t, l, n, compute, ud)) g.pass = MOE_REST;
        if (!gather(t, l, n, first, last)) break;
        for (int32_t r = first; r < last; r++) t->place[t->want[r]] = place_of(l, t->want[r]);
        issue(t, l, n, first, last, last);
        reader_run(t->reader);
        compute(ud, &g);
        for (int32_t r = first; r < last; r++) t->place[t->want[r]] = -1;
        first = last;
    }
    int rc = 0;
    if (first < n) {
        settle(t);
        rc = t->err.code ? t->err.code : CHIMERE_EINTERNAL;
        if (t->err.code) *e = t->err;
        else err_set(e, rc, "experts: no slot for one that is needed");
    }
    t->ran_ns = clock_ns();
    t->ran_long = n_tok > STEP_MAX_TOK;
    show(t);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

void tier_stats(struct tier *t, struct tier_stats *out) {
    struct reader_stats r;
    pthread_mutex_lock(&t->shown_lock);
    *out = t->shown;
    pthread_mutex_unlock(&t->shown_lock);
    reader_stats(t->reader, &r);
    out->busy_ns = r.busy_ns;
    out->is_direct = r.is_direct;
    out->is_uring = r.is_uring;
}

/* ---- idle pages ---- */

void *tier_lend_room(struct tier *t, const void *owner, size_t n) {
    if (t->owner || n > t->room_bytes) return NULL;
    t->owner = owner;
    if (t->room_used) memset(t->pool + t->pool_bytes, 0, n);
    t->room_used = true;
    return t->pool + t->pool_bytes;
}

bool tier_lend_begin(struct tier *t, const void *owner, const struct page_array *a, int32_t n) {
    size_t n_expert = (size_t)t->n_expert;
    if (t->owner != owner) return false;
    struct moe_spare *table = mem_alloc_array((size_t)t->n_layer * n_expert, sizeof *table);
    struct lend_layer *to = mem_alloc_array((size_t)t->n_layer, sizeof *to);
    bool ok = table && to;
    for (int32_t il = 0; ok && il < t->n_layer; il++)
        to[il] = (struct lend_layer){.record = t->layers[il].record,
                                     .most = t->n_expert - t->layers[il].n_slot,
                                     .to = table + (size_t)il * n_expert};
    if (ok) experts_lend_divide(to, t->n_layer, a, n);
    pthread_mutex_lock(&t->lock);
    for (int32_t il = 0; ok && il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        for (int32_t i = 0; i < to[il].n; i++) {
            l->at[l->n_slot + i] = (size_t)((char *)to[il].to[i].at - t->pool);
            l->parts[l->n_slot + i] = to[il].to[i].parts;
        }
        l->n_lent = to[il].n;
    }
    t->lent = 0;
    pthread_mutex_unlock(&t->lock);
    mem_free(to);
    mem_free(table);
    return ok;
}

void tier_lend_parts(struct tier *t, uint32_t parts) {
    pthread_mutex_lock(&t->lock);
    for (int32_t il = 0; il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        for (int32_t s = l->n_slot; s < l->n_slot + l->n_lent; s++) {
            int32_t x = l->expert[s];
            if (x < 0 || !(l->parts[s] & ~parts)) continue;
            await(t, l, x);
            l->slot[x] = l->expert[s] = -1;
        }
    }
    t->lent = parts;
    pthread_mutex_unlock(&t->lock);
}

void tier_lend_end(struct tier *t, const void *owner) {
    if (t->owner != owner) return;
    tier_lend_parts(t, 0);
    for (int32_t il = 0; il < t->n_layer; il++) t->layers[il].n_lent = 0;
    t->owner = NULL;
}

/* ---- filling the pool at the start ---- */

const uint32_t *tier_uses(const struct tier *t) { return t->all_uses; }

/* Returns the most used expert of a layer that is not in the pool; -1: none, or no slot is left for it. */
static int32_t most_used(const struct tier *t, const struct layer *l) {
    int32_t best = -1;
    if (!l->n_free) return -1;
    for (int32_t x = 0; x < t->n_expert; x++)
        if (l->slot[x] < 0 && l->count[x] > 0 && (best < 0 || l->count[x] > l->count[best]))
            best = x;
    return best;
}

/* Starts at most n loads, of one expert per layer from *layer on. Returns the number of loads in mine. */
static int32_t start_fill(struct tier *t, int32_t *layer, struct load **mine, int32_t n) {
    int32_t n_mine = 0;
    for (int32_t k = 0; k < t->n_layer && n_mine < n; k++) {
        struct layer *l = &t->layers[*layer];
        struct load *x = free_load(t);
        int32_t expert = most_used(t, l);
        if (!x) break;
        *layer = (*layer + 1) % t->n_layer;
        if (expert < 0) continue;
        start_load(t, l, x, expert, l->n_slot - l->n_free--);
        x->is_fill = true;
        mine[n_mine++] = x;
    }
    return n_mine;
}

/* Waits without the lock, so that batches run meanwhile; they may end a load before. */
static void end_fill(struct tier *t, struct load *const *mine, int32_t n) {
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < mine[i]->l->n_part; k++) reader_wait(t->reader, &mine[i]->piece[k]);
    pthread_mutex_lock(&t->lock);
    for (int32_t i = 0; i < n; i++) {
        if (!mine[i]->has_ended) end_load(t, mine[i]);
        mine[i]->is_used = false;
    }
}

static void *fill_thread(void *arg) {
    struct tier *t = arg;
    struct load *mine[FILL_LOADS];
    int32_t layer = 0, n = 1;
    pthread_mutex_lock(&t->lock);
    while (!t->quits && n && !t->fill_err.code) {
        int64_t until = t->ran_ns + LATELY_MS * INT64_C(1000000);
        bool lately = t->ran_ns && clock_ns() < until;
        if (lately && t->ran_long) {
            thread_wait_until(&t->wake, &t->lock, until);
            continue;
        }
        n = start_fill(t, &layer, mine, lately ? FILL_STEP_LOADS : FILL_LOADS);
        end_fill(t, mine, n);
        show(t);
    }
    if (t->fill_err.code)
        log_warn("experts: those used most are not read in advance: %s", t->fill_err.text);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Divides the pool anew, as earlier uses suggest. */
static int share_again(struct tier *t, const uint32_t *uses, struct err *e) {
    struct share_layer *share = mem_alloc_array((size_t)t->n_layer, sizeof *share);
    if (!share) return err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    for (int32_t il = 0; il < t->n_layer; il++)
        share[il] =
            (struct share_layer){uses + (size_t)il * (size_t)t->n_expert, t->layers[il].record, 0};
    experts_share(share, t->n_layer, t->n_expert, t->n_used, least_slots(t), t->pool_bytes);
    size_t at = 0;
    t->stats.n_slot = 0;
    for (int32_t il = 0; il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        l->n_slot = l->n_free = share[il].n;
        for (int32_t i = 0; i < l->n_slot; i++, at += l->record) l->at[i] = at;
        t->stats.n_slot += (uint64_t)l->n_slot;
    }
    show(t);
    mem_free(share);
    return 0;
}

/* Counts are as if the experts were used on as often as before. */
int tier_fill(struct tier *t, const uint32_t *uses, struct err *e) {
    int rc = share_again(t, uses, e);
    if (rc) return rc;
    for (int32_t il = 0; il < t->n_layer; il++) {
        struct layer *l = &t->layers[il];
        const uint32_t *n = uses + (size_t)il * (size_t)t->n_expert;
        double sum = 0;
        for (int32_t x = 0; x < t->n_expert; x++) sum += n[x];
        for (int32_t x = 0; l->n_part && sum > 0 && x < t->n_expert; x++)
            l->count[x] = (float)(n[x] / sum * t->n_used * COUNT_HALF / log(2));
    }
    t->has_filler = !pthread_create(&t->filler, NULL, fill_thread, t);
    return t->has_filler ? 0 : err_set(e, CHIMERE_ENOMEM, "cannot start a thread");
}
