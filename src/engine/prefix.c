/* prefix.c: the tree of token blocks, the least-recently-used order and the memory budgets. */
#include "engine/prefix.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/prefix_impl.h"
#include "model/seq/seq.h"

enum {
    /* copied to the host per step, for a checkpoint that goes to a file: a few milliseconds */
    BLOCK = SCAN_GRID,
    N_BUCKET = 1 << 14,
    MAX_MEMORY_ENTRIES = 1 << 15,
    MAX_DISK_ENTRIES = 1 << 14,
    SPILL_STEP_BYTES = 8 << 20,
    RESTORE_BATCH_BYTES = 1 << 20, /* restored between two reads of the clock */
    /* a file is read only if its prefix is at least this many tokens longer than the best one in memory */
    DISK_ADVANTAGE = 256,
    LOOK_MS = 1000, /* a prompt waits at most this long for a look into the shared folder */
    FETCH_MS =
        2000,    /* and this long for a state from there, besides the time of evaluating it twice */
    REST_S = 60, /* after a failure, the shared folder is left alone for this time */
};

struct node { /* one block of tokens; the parents are the blocks before it */
    uint64_t hash, salt;
    struct node *up;            /* NULL: the first block */
    struct node *next;          /* in the same hash bucket */
    struct prefix_entry *entry; /* owned, or NULL */
    int32_t n_child, n_tail; /* number of children with less than a full block; these are leaves */
    int32_t depth;           /* number of blocks up to and including this one */
    int32_t n_tok;           /* BLOCK; less for a tail, which is a partial block */
    int32_t tokens[BLOCK];   /* zeros after n_tok */
};

struct prefix_entry {
    struct node *node;
    struct checkpoint *mark;            /* owned; NULL: the state is not in memory */
    struct prefix_entry *newer, *older; /* least-recently-used list of the entries in memory */
    uint64_t scope, owner, session;
    int32_t n_pin;
    bool busy;    /* the file thread is using it, or it is being moved to the host for a file */
    bool worth;   /* a conversation will probably continue from it: save it to a file */
    bool unsaved; /* writing its file failed */
    bool lost;    /* reading its file failed */
    bool used;    /* a prompt has continued from it */
    int64_t id;   /* of its row in the store; 0: no file */
    char *shared; /* owned: its name in the shared folder; NULL: not known to be there */
    int64_t shared_bytes, fetch_ns; /* fetch_ns: when reading it from there began; 0: it does not */
    char file[32];
};

struct prefix {
    struct lm *lm; /* borrowed */
    const struct lm_mark_ops *ops;
    uint64_t ram_bytes, seed;
    int32_t grid;
    struct node **buckets;                /* owned [N_BUCKET] of owned lists */
    int32_t n_tail;                       /* tails whose parent is the root */
    struct prefix_entry *newest, *oldest; /* least-recently-used list of the entries in memory */
    /* the entry that is being moved to the host, page by page, to be saved; it is marked busy */
    struct prefix_entry *spilling;
    bool spills_to_share; /* it is saved in the shared folder */
    int32_t n_memory, n_disk, n_shared, n_saving;
    bool may_publish;                   /* an entry may deserve to be shared */
    int64_t look_rest_ns, save_rest_ns; /* the shared folder is not read or written until then */
    uint64_t n_look, n_looked;          /* looks that were posted, and that ended, in order */
    double ms_per_tok,
        ms_per_byte; /* of a prompt, and of reading a shared state; 0: not measured */
    struct prefix_files files;
};

/* ---- least-recently-used order ---- */

static void unlink_use(struct prefix *p, struct prefix_entry *x) {
    if (x->newer) x->newer->older = x->older;
    else p->newest = x->older;
    if (x->older) x->older->newer = x->newer;
    else p->oldest = x->newer;
    x->newer = x->older = NULL;
    p->n_memory--;
}

static void link_use(struct prefix *p, struct prefix_entry *x) {
    x->older = p->newest;
    x->newer = NULL;
    if (p->newest) p->newest->newer = x;
    else p->oldest = x;
    p->newest = x;
    p->n_memory++;
}

static void touch(struct prefix *p, struct prefix_entry *x) {
    if (!x->mark) return;
    unlink_use(p, x);
    link_use(p, x);
}

/* ---- the tree ---- */

static uint64_t block_hash(uint64_t before, const int32_t *tokens, int32_t n) {
    return hash_bytes(tokens, (size_t)n * sizeof *tokens, before);
}

static struct node *child(const struct prefix *p, struct node *up, uint64_t salt, uint64_t hash,
                          const int32_t *tokens, int32_t n_tok) {
    for (struct node *n = p->buckets[hash % N_BUCKET]; n; n = n->next)
        if (n->hash == hash && n->up == up && n->salt == salt && n->n_tok == n_tok &&
            memcmp(n->tokens, tokens, (size_t)n_tok * sizeof *tokens) == 0)
            return n;
    return NULL;
}

static int32_t *tails_of(struct prefix *p, struct node *up) {
    return up ? &up->n_tail : &p->n_tail;
}

static struct node *add_child(struct prefix *p, struct node *up, uint64_t salt, uint64_t hash,
                              const int32_t *tokens, int32_t n_tok) {
    struct node *n = mem_alloc(sizeof *n);
    if (!n) return NULL;
    *n = (struct node){.hash = hash,
                       .salt = salt,
                       .up = up,
                       .next = p->buckets[hash % N_BUCKET],
                       .depth = up ? up->depth + 1 : 1,
                       .n_tok = n_tok};
    memcpy(n->tokens, tokens, (size_t)n_tok * sizeof *tokens);
    p->buckets[hash % N_BUCKET] = n;
    if (up) up->n_child++;
    *tails_of(p, up) += n_tok < BLOCK;
    return n;
}

/* Frees n if it has neither an entry nor children; then its parents likewise. */
static void prune(struct prefix *p, struct node *n) {
    while (n && !n->entry && !n->n_child) {
        struct node **at = &p->buckets[n->hash % N_BUCKET], *up = n->up;
        while (*at != n) at = &(*at)->next;
        *at = n->next;
        *tails_of(p, up) -= n->n_tok < BLOCK;
        mem_free(n);
        if (up) up->n_child--;
        n = up;
    }
}

/* Returns the node that ends after n tokens; creates missing nodes. NULL: out of memory. */
static struct node *reach(struct prefix *p, const int32_t *tokens, int64_t n, uint64_t salt) {
    struct node *at = NULL;
    uint64_t h = p->seed ^ salt;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int32_t n_tok = n - i < BLOCK ? (int32_t)(n - i) : BLOCK;
        h = block_hash(h, tokens + i, n_tok);
        struct node *next = child(p, at, salt, h, tokens + i, n_tok);
        if (!next) next = add_child(p, at, salt, h, tokens + i, n_tok);
        if (!next) {
            prune(p, at);
            return NULL;
        }
        at = next;
    }
    return at;
}

/* ---- entries ---- */

static void drop_mark(struct prefix *p, struct prefix_entry *x) {
    if (!x->mark) return;
    unlink_use(p, x);
    p->ops->checkpoint_free(p->lm, x->mark);
    x->mark = NULL;
}

static void forget_file(struct prefix *p, struct prefix_entry *x) {
    if (!x->id) return;
    x->id = 0;
    p->n_disk--;
}

static void forget_shared(struct prefix *p, struct prefix_entry *x) {
    if (!x->shared) return;
    mem_free(x->shared);
    x->shared = NULL;
    p->n_shared--;
}

/* Frees x if its state is neither in memory nor in a file and x is not in use. */
static void release(struct prefix *p, struct prefix_entry *x) {
    if (x->mark || x->id || x->shared || x->busy || x->n_pin) return;
    struct node *n = x->node;
    n->entry = NULL;
    mem_free(x);
    prune(p, n);
}

static struct prefix_entry *entry_at(struct node *n) {
    if (n->entry) return n->entry;
    n->entry = mem_zalloc(sizeof *n->entry);
    if (n->entry) n->entry->node = n;
    return n->entry;
}

static uint64_t file_bytes(const struct prefix *p, const struct prefix_entry *x) {
    return p->lm->checkpoint_bytes + (uint64_t)x->node->depth * p->lm->page_bytes;
}

static bool fits_a_file(const struct prefix_entry *x) {
    return x->node->salt == x->scope && x->node->n_tok == BLOCK;
}

static bool has_file_room(const struct prefix *p, const struct prefix_entry *x) {
    return p->files.dir && !x->unsaved && !x->shared && fits_a_file(x) &&
           file_bytes(p, x) <= p->files.disk_bytes;
}

int64_t prefix_pos(const struct prefix_entry *x) {
    return (int64_t)(x->node->depth - 1) * BLOCK + x->node->n_tok;
}

/* ---- lookup ---- */

/* Returns the longest tail below `up` that matches the beginning of tokens, at most n of them; NULL: none. h: hash of
 * the tokens up to `up`. */
static struct prefix_entry *find_tail(struct prefix *p, struct node *up, uint64_t h, uint64_t salt,
                                      const int32_t *tokens, int64_t n) {
    if (!*tails_of(p, up)) return NULL;
    for (int32_t k = n < BLOCK ? (int32_t)n : BLOCK - 1; k > 0; k--) {
        struct node *x = child(p, up, salt, block_hash(h, tokens, k), tokens, k);
        if (x && x->entry && x->entry->mark) return x->entry;
    }
    return NULL;
}

static int64_t pos_of(const struct prefix_entry *x) { return x ? prefix_pos(x) : 0; }

/* Returns true if reading a file takes less time than evaluating n_tok tokens, as far as both were measured. Each refusal
 * lowers the estimate a little, so that a folder that was slow once is tried again. */
static bool pays(struct prefix *p, int64_t n_bytes, int64_t n_tok) {
    double read_ms = (double)n_bytes * p->ms_per_byte, ms = (double)n_tok * p->ms_per_tok;
    if (!(read_ms > 0) || !(ms > 0) || read_ms < ms) return true;
    p->ms_per_byte *= 0.95;
    return false;
}

struct prefix_entry *prefix_find(struct prefix *p, const int32_t *tokens, int32_t n,
                                 uint64_t salt) {
    struct node *at = NULL;
    struct prefix_entry *best = NULL, *disk = NULL, *x;
    uint64_t h = p->seed ^ salt;
    for (int64_t i = 0;; i += BLOCK) {
        if ((x = find_tail(p, at, h, salt, tokens + i, n - 1 - i))) best = x;
        if (i + BLOCK >= n) break;
        h = block_hash(h, tokens + i, BLOCK);
        at = child(p, at, salt, h, tokens + i, BLOCK);
        if (!at) break;
        x = at->entry;
        if (!x || x->lost || (int64_t)at->depth * BLOCK % p->grid) continue;
        if (x->mark) best = x;
        else if (x->id || x->shared) disk = x;
    }
    int64_t gain = pos_of(disk) - pos_of(best);
    if (disk && (!best || gain >= DISK_ADVANTAGE) &&
        (disk->id || pays(p, disk->shared_bytes, gain)))
        best = disk;
    if (!best) return NULL;
    best->n_pin++;
    p->may_publish |= !best->used;
    best->used = true;
    touch(p, best);
    /* keep prefixes that many conversations share */
    for (struct node *up = best->node->up; up; up = up->up)
        if (up->entry && up->entry->used) touch(p, up->entry);
    touch(p, best);
    return best;
}

/* Gives up a state that the shared folder does not deliver. Once it arrives, it can be found again. */
static bool is_overdue(struct prefix *p, struct prefix_entry *x) {
    double limit = FETCH_MS + 2 * p->ms_per_tok * (double)prefix_pos(x);
    if (!x->fetch_ns || clock_ms_since(x->fetch_ns) < limit) return false;
    log_warn("the folder of shared states is slow: prompts are evaluated for %d s", REST_S);
    p->look_rest_ns = clock_ns() + REST_S * INT64_C(1000000000);
    x->lost = true;
    return true;
}

int prefix_fetch(struct prefix *p, struct prefix_entry *x) {
    if (x->mark) return 1;
    if (x->lost || (!x->id && !x->shared && !x->busy)) return CHIMERE_ENOENT;
    if (x->busy && is_overdue(p, x)) return CHIMERE_EIO;
    if (x->busy) return 0;
    struct prefix_task *t = prefix_task_new(TASK_LOAD);
    if (!t) return CHIMERE_ENOMEM;
    t->entry = x;
    t->id = x->id;
    t->is_shared = !x->id;
    t->scope = x->node->salt;
    if (t->is_shared) memcpy(t->file, x->shared, strlen(x->shared) + 1);
    else memcpy(t->file, x->file, sizeof x->file);
    x->fetch_ns = t->is_shared ? clock_ns() : 0;
    x->busy = true;
    prefix_files_post(&p->files, t);
    return 0;
}

int prefix_restore(struct prefix *p, struct prefix_entry *x, struct seq *seq, bool first, double ms,
                   struct err *e) {
    int64_t start = clock_ns();
    uint64_t n_page = p->lm->page_bytes ? RESTORE_BATCH_BYTES / p->lm->page_bytes + 1 : 1024;
    for (int rc;; first = false) {
        int64_t want = p->ops->ctx_to_load(p->lm, x->mark), most = (int64_t)n_page * KV_PAGE;
        prefix_make_room(p, want < most ? want : most);
        rc = p->ops->restore(p->lm, seq, x->mark, first, (int32_t)n_page, e);
        /* the state is lost: do not find this entry again; but the file thread may still be reading the mark */
        if (rc == CHIMERE_ENOENT && !x->busy) drop_mark(p, x);
        if (rc || clock_ms_since(start) >= ms) return rc;
    }
}

void prefix_unpin(struct prefix *p, struct prefix_entry *x) {
    x->n_pin--;
    release(p, x);
}

/* ---- the folder that servers share ---- */

/* Posts a look for a state that is longer than those that are known. Returns its number; 0: no need, or no memory. */
static uint64_t start_look(struct prefix *p, const int32_t *tokens, int32_t n, uint64_t salt,
                           uint64_t scope) {
    int64_t known = 0;
    uint64_t h = p->seed ^ salt;
    if (!p->files.shared || salt != scope || clock_ns() < p->look_rest_ns) return 0;
    struct node *at = NULL;
    for (int64_t i = 0; i + BLOCK < n; i += BLOCK) {
        h = block_hash(h, tokens + i, BLOCK);
        at = child(p, at, salt, h, tokens + i, BLOCK);
        if (!at) break;
        if (at->entry && !at->entry->lost) known = i + BLOCK;
    }
    if (n <= known + DISK_ADVANTAGE) return 0;
    struct prefix_task *t = prefix_task_new(TASK_LOOK);
    if (t) t->tokens = mem_alloc((size_t)n * sizeof *tokens);
    if (!t || !t->tokens) {
        mem_free(t);
        return 0;
    }
    memcpy(t->tokens, tokens, (size_t)n * sizeof *tokens);
    t->n_tok = n;
    t->scope = scope;
    t->pos = known;
    t->is_shared = true;
    prefix_files_post(&p->files, t);
    return ++p->n_look;
}

bool prefix_look(struct prefix *p, struct prefix_lookup *l, const int32_t *tokens, int32_t n,
                 uint64_t salt, uint64_t scope) {
    if (!l->since_ns) {
        l->since_ns = clock_ns();
        l->number = start_look(p, tokens, n, salt, scope);
    }
    if (l->number <= p->n_looked) return true;
    if (clock_ms_since(l->since_ns) < LOOK_MS) return false;
    if (clock_ns() >= p->look_rest_ns)
        log_warn("the folder of shared states does not answer: prompts are evaluated for %d s",
                 REST_S);
    p->look_rest_ns = clock_ns() + REST_S * INT64_C(1000000000);
    return true;
}

static double mean_of(double mean, double now) { return mean > 0 ? 0.8 * mean + 0.2 * now : now; }

void prefix_evaluated(struct prefix *p, int32_t n_tok, double ms) {
    if (n_tok >= BLOCK && ms > 0) p->ms_per_tok = mean_of(p->ms_per_tok, ms / n_tok);
}

/* Begins to save an entry that others may need: a conversation will probably continue from it, or several prompts did.
 * Both states of an answer are saved, because a server continues bit for bit only from the one that this server would use. */
static void publish(struct prefix *p) {
    if (!p->may_publish || p->spilling || p->n_saving || clock_ns() < p->save_rest_ns) return;
    for (struct prefix_entry *x = p->newest; x; x = x->older) {
        if ((!x->worth && !x->used) || x->shared || x->busy || !fits_a_file(x)) continue;
        if (prefix_pos(x) < DISK_ADVANTAGE || p->n_shared >= MAX_DISK_ENTRIES) continue;
        x->busy = true;
        p->spilling = x;
        p->spills_to_share = true;
        return;
    }
    p->may_publish = false;
}

/* ---- adding checkpoints ---- */

struct prefix_entry *prefix_keep(struct prefix *p, struct seq *seq, const struct prefix_at *at) {
    struct node *n = reach(p, at->tokens, at->pos, at->salt);
    struct prefix_entry *x = n ? entry_at(n) : NULL;
    if (!x) {
        prune(p, n);
        return NULL;
    }
    if (!x->mark && !x->busy) {
        struct err e;
        if (p->ops->mark(p->lm, seq, at->n_drop, &x->mark, &e)) {
            log_debug("no checkpoint: %s", e.text);
            release(p, x);
            return NULL;
        }
        link_use(p, x);
        x->lost = false;
    }
    touch(p, x);
    x->scope = at->scope;
    x->owner = at->owner;
    if (at->session) x->session = at->session;
    x->n_pin++;
    return x;
}

void prefix_replace(struct prefix *p, struct prefix_entry *x) {
    x->n_pin--;
    if (!x->n_pin && !x->used && !x->worth && !x->busy && !x->id) drop_mark(p, x);
    release(p, x);
}

void prefix_finish(struct prefix *p, struct prefix_entry *began, struct prefix_entry *ended) {
    struct prefix_entry *first = began ? began : ended;
    for (struct node *up = first ? first->node->up : NULL; up; up = up->up)
        if (up->entry) up->entry->worth = false;
    if (began) began->worth = true;
    if (ended) ended->worth = true;
    p->may_publish = true;
    if (began) prefix_unpin(p, began);
    if (ended) prefix_unpin(p, ended);
}

/* ---- budgets ---- */

void prefix_make_room(struct prefix *p, int64_t n_ctx) {
    int64_t missing;
    bool moved = true;
    struct err e;
    while (moved && (missing = n_ctx - p->ops->ctx_free(p->lm)) > 0) {
        moved = false;
        int32_t n_page = (int32_t)((missing + KV_PAGE - 1) / KV_PAGE);
        for (struct prefix_entry *x = p->oldest, *next; x; x = next) {
            next = x->newer;
            /* the file thread reads it, so its pages are on the host already */
            if (x->busy && x != p->spilling) continue;
            int32_t n = p->ops->page_out(p->lm, x->mark, n_page, &e);
            /* no host memory for its pages: drop the checkpoint instead of blocking the prompt */
            if (n < 0 && !x->n_pin && !x->busy) {
                drop_mark(p, x);
                release(p, x);
                n = 1;
            }
            moved |= n > 0;
            if (p->ops->ctx_free(p->lm) >= n_ctx) return;
        }
    }
}

/* The entry that is being saved cannot be. */
static void give_up_save(struct prefix *p, struct prefix_entry *x, bool is_shared) {
    x->busy = false;
    if (is_shared) p->save_rest_ns = clock_ns() + REST_S * INT64_C(1000000000);
    else x->unsaved = true;
}

static void start_save(struct prefix *p, struct prefix_entry *x, bool is_shared) {
    struct prefix_task *t = prefix_task_new(TASK_SAVE);
    if (t) {
        t->is_shared = is_shared;
        t->n_tok = (int32_t)prefix_pos(x);
        t->tokens = mem_alloc((size_t)t->n_tok * sizeof *t->tokens + 1);
    }
    if (!t || !t->tokens) {
        if (t) prefix_task_free(&p->files, t);
        give_up_save(p, x, is_shared);
        return;
    }
    for (struct node *n = x->node; n; n = n->up)
        memcpy(t->tokens + (int64_t)(n->depth - 1) * BLOCK, n->tokens, sizeof n->tokens);
    t->entry = x;
    t->mark = x->mark;
    t->scope = x->scope;
    t->owner = x->owner;
    t->session = x->session;
    p->n_saving++;
    prefix_files_post(&p->files, t);
}

/* Copies up to n_bytes of the entry that is being saved to the host; once all is there, passes it to the file
 * thread. */
static void spill(struct prefix *p, int64_t n_bytes) {
    struct prefix_entry *x = p->spilling;
    struct err e;
    int64_t n_max = p->lm->page_bytes ? n_bytes / (int64_t)p->lm->page_bytes + 1 : 1;
    int32_t n =
        p->ops->page_out(p->lm, x->mark, n_max > INT32_MAX ? INT32_MAX : (int32_t)n_max, &e);
    if (n >= n_max) return;
    bool is_shared = p->spills_to_share;
    p->spilling = NULL;
    p->spills_to_share = false;
    if (n < 0) give_up_save(p, x, is_shared);
    else start_save(p, x, is_shared);
}

/* Frees memory, least recently used first. Entries that have a file or do not deserve one are dropped. The first entry
 * that deserves a file is saved; the others wait for this unless memory exceeds the budget by a quarter. */
static void keep_budget(struct prefix *p) {
    struct prefix_entry *x = p->oldest, *next;
    for (; x && (p->ops->host_bytes(p->lm) > p->ram_bytes || p->n_memory > MAX_MEMORY_ENTRIES);
         x = next) {
        next = x->newer;
        if (x->busy || x->n_pin) continue;
        bool save = x->worth && !x->id && has_file_room(p, x);
        bool far = p->ops->host_bytes(p->lm) > p->ram_bytes + p->ram_bytes / 4;
        if (save && !p->spilling && !p->n_saving) {
            x->busy = true;
            p->spilling = x;
        } else if (!save || far) {
            drop_mark(p, x);
            release(p, x);
        }
    }
}

/* ---- results of the file thread ---- */

static bool same_tokens(const struct prefix_task *t) {
    const struct node *n = t->entry->node;
    if (t->n_tok != n->depth * BLOCK) return false;
    for (; n; n = n->up)
        if (memcmp(t->tokens + (int64_t)(n->depth - 1) * BLOCK, n->tokens, sizeof n->tokens) != 0)
            return false;
    return true;
}

static void post_for(struct prefix *p, enum prefix_task_kind kind, const struct prefix_entry *x) {
    struct prefix_task *t = prefix_task_new(kind);
    if (!t) return;
    t->id = x->id;
    memcpy(t->file, x->file, sizeof x->file);
    prefix_files_post(&p->files, t);
}

static void take_loaded(struct prefix *p, struct prefix_task *t) {
    struct prefix_entry *x = t->entry;
    x->busy = false;
    x->fetch_ns = 0;
    if (t->is_shared && !t->rc && x->shared_bytes > 0)
        p->ms_per_byte = mean_of(p->ms_per_byte, t->ms / (double)x->shared_bytes);
    if (!t->rc && same_tokens(t)) {
        x->mark = t->mark;
        t->mark = NULL;
        x->lost = false;
        link_use(p, x);
        if (!t->is_shared) post_for(p, TASK_USED, x);
    } else if (t->is_shared) {
        if (t->rc != CHIMERE_ENOMEM) forget_shared(p, x);
        x->lost = true;
    } else if (t->rc != CHIMERE_ENOMEM) {
        if (!t->rc) post_for(p, TASK_REMOVE, x); /* the file contains other tokens */
        forget_file(p, x);
        x->lost = true;
    } else {
        x->lost = true; /* an error for the prompts that wait for it now */
    }
    release(p, x);
}

/* Remembers that the state of x is in the shared folder. */
static bool know_shared(struct prefix *p, struct prefix_entry *x, const struct prefix_task *t) {
    if (!x->shared) {
        x->shared = mem_strdup(t->file);
        if (!x->shared) return false;
        p->n_shared++;
    }
    x->shared_bytes = t->n_bytes;
    return true;
}

static void take_saved(struct prefix *p, struct prefix_task *t) {
    struct prefix_entry *x = t->entry;
    x->busy = false;
    p->n_saving--;
    if (t->is_shared) {
        if (t->rc || !know_shared(p, x, t)) give_up_save(p, x, true);
    } else {
        x->unsaved = t->rc != 0;
    }
    if (!t->rc && !t->is_shared) {
        x->id = t->id;
        memcpy(x->file, t->file, sizeof x->file);
        p->n_disk++;
    }
    release(p, x);
}

static void take_looked(struct prefix *p, struct prefix_task *t) {
    p->n_looked++;
    if (!t->pos || p->n_shared >= MAX_DISK_ENTRIES) return;
    struct node *n = reach(p, t->tokens, t->pos, t->scope);
    struct prefix_entry *x = n ? entry_at(n) : NULL;
    if (!x) {
        prune(p, n);
        return;
    }
    x->scope = t->scope;
    x->lost = false;
    know_shared(p, x, t);
    release(p, x);
}

static struct prefix_entry *find_file(struct prefix *p, const char *file) {
    for (int32_t i = 0; i < N_BUCKET; i++)
        for (struct node *n = p->buckets[i]; n; n = n->next)
            if (n->entry && n->entry->id && strcmp(n->entry->file, file) == 0) return n->entry;
    return NULL;
}

static void take_news(struct prefix *p) {
    for (struct prefix_task *t; (t = prefix_files_take(&p->files));) {
        if (t->kind == TASK_SAVE) take_saved(p, t);
        if (t->kind == TASK_LOAD) take_loaded(p, t);
        if (t->kind == TASK_LOOK) take_looked(p, t);
        struct prefix_entry *x = t->kind == TASK_EVICTED ? find_file(p, t->file) : NULL;
        if (x) {
            forget_file(p, x);
            release(p, x);
        }
        prefix_task_free(&p->files, t);
    }
}

bool prefix_settle(struct prefix *p) {
    if (p->files.is_open) take_news(p);
    if (p->files.shared) publish(p);
    if (p->spilling) spill(p, SPILL_STEP_BYTES);
    keep_budget(p);
    return p->spilling || (p->files.is_open && prefix_files_busy(&p->files));
}

void prefix_totals(const struct prefix *p, struct engine_totals *t) {
    t->n_state = p->n_memory;
    t->n_state_disk = p->n_disk;
    t->state_bytes = p->ops->host_bytes(p->lm);
}

/* ---- start and end ---- */

static int add_known(void *ud, const struct store_state *st) {
    struct prefix *p = ud;
    if (st->n_tok < BLOCK || st->n_tok % BLOCK ||
        strlen(st->file) >= sizeof((struct prefix_entry *)0)->file)
        return 0;
    if (p->n_disk >= MAX_DISK_ENTRIES) return 0;
    struct node *n = reach(p, st->tokens, st->n_tok, st->scope);
    struct prefix_entry *x = n ? entry_at(n) : NULL;
    if (!x) {
        prune(p, n);
        return CHIMERE_ENOMEM;
    }
    /* if two files have the same tokens, the one used later replaces the other */
    if (!x->id) p->n_disk++;
    x->id = st->id;
    x->scope = st->scope;
    x->owner = st->owner;
    x->session = st->session;
    x->worth = true;
    memcpy(x->file, st->file, strlen(st->file) + 1);
    return 0;
}

int prefix_new(struct prefix **out, struct lm *lm, const struct cache_params *c, uint64_t schedule,
               int32_t grid, struct err *e) {
    *out = NULL;
    struct prefix *p = mem_zalloc(sizeof *p);
    if (p) p->buckets = mem_alloc_array(N_BUCKET, sizeof *p->buckets);
    if (!p || !p->buckets) {
        mem_free(p);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    p->lm = lm;
    p->ops = lm->ops->marks;
    p->ram_bytes = c->ram_bytes;
    p->grid = grid;
    const uint64_t form[] = {lm->layout, schedule};
    uint64_t layout = hash_bytes(form, sizeof form, 0);
    p->seed = rng_process_seed();
    int rc = 0;
    bool has_own = c->dir && c->store && c->disk_bytes;
    if (has_own || c->shared_dir)
        rc = prefix_files_open(&p->files, lm, c, schedule, layout, grid, e);
    if (!rc && has_own) rc = store_state_list(c->store, layout, add_known, p, e);
    if (rc) {
        prefix_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

static void wait_for_files(struct prefix *p, int32_t ms) {
    if (p->files.is_open) prefix_files_wait(&p->files, ms);
}

/* Saves the entries from which a conversation may continue. The most recently used is saved last, so that it is evicted
 * last. */
static void save_all(struct prefix *p) {
    while (p->files.is_open && prefix_settle(p)) wait_for_files(p, 100);
    for (struct prefix_entry *x = p->oldest, *next; x && p->files.dir; x = next) {
        next = x->newer;
        if (x->busy || !x->worth || x->id || !has_file_room(p, x)) continue;
        x->busy = true;
        p->spilling = x;
        spill(p, INT64_MAX / 2);
        while (prefix_files_busy(&p->files)) {
            wait_for_files(p, 100);
            take_news(p);
        }
    }
}

void prefix_free(struct prefix *p) {
    if (!p) return;
    save_all(p);
    prefix_files_close(&p->files);
    for (int32_t i = 0; i < N_BUCKET; i++)
        for (struct node *n = p->buckets[i], *next; n; n = next) {
            next = n->next;
            if (n->entry) drop_mark(p, n->entry);
            if (n->entry) forget_shared(p, n->entry);
            mem_free(n->entry);
            mem_free(n);
        }
    mem_free(p->buckets);
    mem_free(p);
}
