/* checkpoint.c: checkpoints: pages are shared or copied to the host, recurrent state is copied. */
#include "model/seq/checkpoint.h"

#include <string.h>

#include "base/mem.h"
#include "model/seq/seq_copy.h"

/* ---- pages on the host ---- */

static void host_unref(struct seq_pool *p, struct host_page *h) {
    if (--h->refs) return;
    if (h->page >= 0) p->twin[h->page] = NULL;
    p->host_bytes -= seq_page_bytes(p);
    mem_free(h);
}

static struct host_page *host_new(struct seq_pool *p) {
    size_t n = seq_page_bytes(p);
    struct host_page *h = mem_alloc(sizeof *h + n);
    if (!h) return NULL;
    *h = (struct host_page){.refs = 1, .page = -1};
    p->host_bytes += n;
    return h;
}

static void pair(struct seq_pool *p, struct host_page *h, int32_t page) {
    h->page = page;
    p->twin[page] = h;
}

/* ---- checkpoints ---- */

static struct checkpoint *checkpoint_alloc(struct seq_pool *p, int64_t pos, int32_t n_log) {
    int32_t n_page = seq_n_pages_for(pos);
    struct checkpoint *m = mem_zalloc(sizeof *m);
    if (!m) return NULL;
    *m = (struct checkpoint){.pool = p, .pos = pos, .n_log = n_log, .n_page = n_page};
    m->pages = mem_alloc_array((size_t)n_page + 1, sizeof *m->pages);
    return m;
}

/* Copies the recurrent bytes of a slot between device and host. */
static void rec_transfer(struct seq_pool *p, int32_t slot, char *host, bool to_host) {
    struct seq_copy c = {.p = p, .to_host = to_host};
    struct rec_part part;
    for (int32_t i = 0; seq_rec_part(p, i, &part); i++) {
        size_t bytes = part.n * sizeof(float);
        if (!bytes) continue;
        seq_copy_add(&c, part.at + (size_t)slot * part.n, host, bytes);
        host += bytes;
    }
    seq_copy_end(&c);
}

int checkpoint_new(struct seq *s, int32_t n_drop, struct checkpoint **out, struct err *e) {
    *out = NULL;
    struct seq_pool *p = s->pool;
    if (n_drop < 0 || n_drop > s->n_log)
        return err_set(e, CHIMERE_EINVAL, "checkpoint: expected at most %d tokens back, got %d",
                       s->n_log, n_drop);
    struct checkpoint *m = checkpoint_alloc(p, s->pos - n_drop, s->n_log - n_drop);
    if (m) {
        m->rec = p->spare_rec ? p->spare_rec : mem_aligned(64, p->rec_bytes);
        p->spare_rec = NULL;
    }
    if (!m || !m->pages || !m->rec) {
        if (m) mem_free(m->pages);
        if (m) mem_free(m->rec);
        mem_free(m);
        return err_set(e, CHIMERE_ENOMEM, "checkpoint of %zu bytes: out of memory", p->rec_bytes);
    }
    p->host_bytes += p->rec_bytes;
    for (int32_t i = 0; i < m->n_page; i++) {
        m->pages[i].page = s->pages[i];
        p->page_refs[s->pages[i]]++;
    }
    rec_transfer(p, s->slot, m->rec, true);
    *out = m;
    return 0;
}

int seq_mark(struct seq *s, struct checkpoint **out, struct err *e) {
    return checkpoint_new(s, 0, out, e);
}

struct checkpoint *checkpoint_alloc_host(struct seq_pool *p, int64_t pos, int32_t n_log) {
    struct checkpoint *m = checkpoint_alloc(p, pos, n_log);
    if (!m) return NULL;
    m->rec = mem_aligned(64, p->rec_bytes);
    if (m->rec) p->host_bytes += p->rec_bytes;
    bool ok = m->pages && m->rec;
    for (int32_t i = 0; m->pages && i < m->n_page; i++) {
        m->pages[i] = (struct checkpoint_page){-1, ok ? host_new(p) : NULL};
        ok = ok && m->pages[i].host;
    }
    if (ok) return m;
    checkpoint_free_host(m);
    return NULL;
}

void checkpoint_free_host(struct checkpoint *m) {
    if (!m) return;
    struct seq_pool *p = m->pool;
    if (m->rec) p->host_bytes -= p->rec_bytes;
    mem_free(m->rec);
    m->rec = NULL;
    for (int32_t i = 0; m->pages && i < m->n_page; i++) {
        if (m->pages[i].page >= 0) seq_page_unref(p, m->pages[i].page);
        else if (m->pages[i].host) host_unref(p, m->pages[i].host);
    }
    mem_free(m->pages);
    mem_free(m);
}

/* Keeps the state buffer, tens of megabytes, for the next checkpoint, which then need not map and clear memory. */
void checkpoint_free(struct checkpoint *m) {
    if (!m) return;
    struct seq_pool *p = m->pool;
    mem_free(p->spare_rec);
    p->spare_rec = m->rec;
    m->rec = NULL;
    if (p->spare_rec) p->host_bytes -= p->rec_bytes;
    checkpoint_free_host(m);
}

int64_t checkpoint_pos(const struct checkpoint *m) { return seq_tokens_at(m->pool, m->pos); }
size_t checkpoint_state_bytes(const struct seq_pool *p) { return p->rec_bytes; }
size_t checkpoint_page_bytes(const struct seq_pool *p) { return seq_page_bytes(p); }
uint64_t checkpoint_host_bytes(const struct seq_pool *p) { return p->host_bytes; }

uint64_t checkpoint_bytes(const struct checkpoint *m) {
    uint64_t n = m->pool->rec_bytes, n_page = seq_page_bytes(m->pool);
    for (int32_t i = 0; i < m->n_page; i++)
        if (m->pages[i].page < 0 || m->pool->page_refs[m->pages[i].page] == 1) n += n_page;
    return n;
}

int32_t checkpoint_n_pooled(const struct checkpoint *m) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_page; i++) n += m->pages[i].page >= 0;
    return n;
}

/* Whether page i of m will never be written again: positions before the checkpoint's own are final. */
static bool is_full(const struct checkpoint *m, int32_t i) {
    return (int64_t)(i + 1) * KV_PAGE <= m->pos;
}

int32_t checkpoint_page_out(struct checkpoint *m, int32_t n_max, struct err *e) {
    struct seq_pool *p = m->pool;
    int32_t n = 0;
    for (int32_t i = m->n_page - 1; i >= 0 && n < n_max; i--) {
        int32_t page = m->pages[i].page;
        if (page < 0) continue;
        struct host_page *h = is_full(m, i) ? p->twin[page] : NULL;
        if (h) {
            h->refs++;
        } else {
            h = host_new(p);
            if (!h) return n ? n : err_set(e, CHIMERE_ENOMEM, "checkpoint: out of memory");
            seq_page_transfer(p, page, h->data, true);
            if (is_full(m, i)) pair(p, h, page);
        }
        m->pages[i] = (struct checkpoint_page){-1, h};
        seq_page_unref(p, page);
        n++;
    }
    return n;
}

/* Whether page i of m must be uploaded. */
static bool is_away(const struct checkpoint *m, int32_t i) {
    return m->pages[i].page < 0 && m->pages[i].host->page < 0;
}

int64_t checkpoint_n_ctx_to_load(const struct checkpoint *m) {
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_page; i++) n += is_away(m, i);
    return n * KV_PAGE;
}

/* ---- sequences from checkpoints ---- */

/* Extends s, which has the first s->n_page pages of m, up to page n_page; after the last page also sets its position
 * and state. The caller has checked that enough pages are free. */
static void adopt(struct seq *s, const struct checkpoint *m, int32_t n_page) {
    struct seq_pool *p = s->pool;
    for (int32_t i = s->n_page; i < n_page; i++) {
        int32_t page = m->pages[i].page;
        struct host_page *h = m->pages[i].host;
        if (page < 0) page = h->page;
        if (page >= 0) {
            p->page_refs[page]++;
        } else {
            page = seq_page_take(p);
            seq_page_transfer(p, page, h->data, false);
            if (is_full(m, i)) pair(p, h, page);
        }
        s->pages[i] = page;
    }
    s->n_page = n_page;
    if (n_page < m->n_page) return;
    s->pos = m->pos;
    s->n_log = m->n_log;
    rec_transfer(p, s->slot, m->rec, false);
}

static int check_room(const struct seq_pool *p, const struct checkpoint *m, int32_t from,
                      int32_t to, struct err *e) {
    int64_t want = 0, have = seq_pool_free_ctx(p);
    for (int32_t i = from; i < to; i++) want += is_away(m, i) ? KV_PAGE : 0;
    return want <= have ? 0
                        : err_set(e, CHIMERE_ELIMIT,
                                  "context memory is full: %lld positions wanted, %lld free",
                                  (long long)want, (long long)have);
}

int checkpoint_restore(struct seq *s, const struct checkpoint *m, bool first, int32_t n_max,
                       struct err *e) {
    if (m->pool != s->pool)
        return err_set(e, CHIMERE_EMISMATCH, "checkpoint belongs to another pool");
    int32_t from = first ? 0 : s->n_page, left = m->n_page - from;
    int32_t to = from + (n_max < left ? n_max : left);
    int rc = seq_grow_table(s, m->n_page, e);
    if (!rc) rc = check_room(s->pool, m, from, to, e);
    if (rc) return rc;
    if (first) {
        seq_drop_pages(s, 0);
        s->pos = 0;
        s->n_log = 0;
    }
    adopt(s, m, to);
    return to == m->n_page;
}

int seq_rewind(struct seq *s, const struct checkpoint *m, struct err *e) {
    int rc = checkpoint_restore(s, m, true, INT32_MAX, e);
    return rc < 0 ? rc : 0;
}

int seq_from_checkpoint(struct seq_pool *p, const struct checkpoint *m, struct seq **out,
                        struct err *e) {
    *out = NULL;
    if (m->pool != p) return err_set(e, CHIMERE_EMISMATCH, "checkpoint belongs to another pool");
    struct seq *s;
    int rc = check_room(p, m, 0, m->n_page, e);
    if (!rc) rc = seq_alloc(&s, p, e);
    if (rc) return rc;
    rc = seq_grow_table(s, m->n_page, e);
    if (rc) {
        seq_free(s);
        return rc;
    }
    adopt(s, m, m->n_page);
    *out = s;
    return 0;
}
