/* grammar_match.c: runs the automaton: interned objects, closure, steps, collection, states.
 *
 * The closure does not grow exponentially: all configurations that call a rule at the same place share one new
 * frame with several return links (a graph-structured stack). So n alternatives nested d deep cost n * d, not n^d.
 * Left recursion is refused at compile time, so the frames made in one closure link to each other without cycles. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "text/grammar/grammar_match_impl.h"

#define PENDING 0x80000000u

static uint64_t content_hash(enum object_kind kind, const uint32_t *p, uint32_t n) {
    uint64_t h = rng_process_seed() + kind;
    for (uint32_t i = kind == OBJ_STATE ? 2 : 0; i < n; i++) h = hash_mix(h ^ p[i]) + n;
    return h;
}

uint32_t match_intern(struct grammar_matcher *m, enum object_kind kind, const uint32_t *p,
                      uint32_t n) {
    uint32_t skip = kind == OBJ_STATE ? 2 : 0, header = (uint32_t)kind << 28 | n;
    uint32_t i = (uint32_t)content_hash(kind, p, n) & (m->cap_table - 1);
    for (; m->table[i]; i = (i + 1) & (m->cap_table - 1)) {
        const uint32_t *w = m->words + m->table[i];
        if (w[0] == header && memcmp(w + 1 + skip, p + skip, (n - skip) * 4) == 0)
            return m->table[i];
    }
    if (n >= 1u << 28 || m->cap_word - m->n_word < n + 1 || m->n_object >= m->cap_table / 4 * 3) {
        m->is_full = true;
        return 0;
    }
    uint32_t h = m->n_word;
    m->words[h] = header;
    memcpy(m->words + h + 1, p, n * 4);
    m->n_word += n + 1;
    m->table[i] = h;
    m->n_object++;
    return h;
}

static int by_pair(const void *x, const void *y) {
    const uint32_t *a = x, *b = y;
    if (a[0] != b[0]) return a[0] < b[0] ? -1 : 1;
    return a[1] < b[1] ? -1 : a[1] > b[1];
}

/* Sorts pairs and removes duplicates; most sets have one or two. */
static uint32_t sort_pairs(uint32_t *p, uint32_t n) {
    if (n == 2 && by_pair(p, p + 2) > 0) {
        uint32_t a = p[0], b = p[1];
        p[0] = p[2], p[1] = p[3], p[2] = a, p[3] = b;
    } else if (n > 2) {
        qsort(p, n, 8, by_pair);
    }
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (k == 0 || p[2 * i] != p[2 * k - 2] || p[2 * i + 1] != p[2 * k - 1]) {
            p[2 * k] = p[2 * i], p[2 * k + 1] = p[2 * i + 1];
            k++;
        }
    return k;
}

/* ---- closure ---- */

static void push(struct grammar_matcher *m, uint32_t node, uint32_t frame) {
    uint32_t i = (uint32_t)hash_mix((uint64_t)node << 32 | frame) & (m->cap_seen - 1);
    for (; m->seen_stamp[i] == m->stamp; i = (i + 1) & (m->cap_seen - 1))
        if (m->seen[i].node == node && m->seen[i].frame == frame) return;
    if (m->n_seen >= m->cap_seen / 2 || m->n_work >= m->cap_conf) {
        m->is_full = true;
        return;
    }
    m->n_seen++;
    m->seen_stamp[i] = m->stamp;
    m->seen[i] = m->work[m->n_work++] = (struct conf){node, frame};
}

static void add_link(struct grammar_matcher *m, struct pending *p, uint32_t frame, uint32_t node,
                     int depth) {
    /* If the return leads to another return, link to that frame's callers directly, so that right recursion does
     * not grow the stack. */
    if (m->g->nodes[node].op == G_RET && !(frame & PENDING) && depth < 64) {
        uint32_t links = object_at(m, frame)[0], n = object_n(m, links);
        if (n > 1) {
            for (uint32_t i = 0; i < n; i += 2)
                add_link(m, p, object_at(m, links)[i], object_at(m, links)[i + 1], depth + 1);
            return;
        }
    }
    for (uint32_t l = p->first_link; l != GRAMMAR_NONE; l = m->links[l].next)
        if (m->links[l].frame == frame && m->links[l].node == node) return;
    if (m->n_link >= m->cap_conf) {
        m->is_full = true;
        return;
    }
    m->links[m->n_link] = (struct link){frame, node, p->first_link};
    p->first_link = m->n_link++;
}

static void call(struct grammar_matcher *m, uint32_t rule, uint32_t next, uint32_t frame) {
    if (m->rule_stamp[rule] != m->stamp) {
        if (m->n_pending >= m->cap_pending) {
            m->is_full = true;
            return;
        }
        m->rule_stamp[rule] = m->stamp;
        m->rule_pending[rule] = m->n_pending;
        m->pending[m->n_pending] = (struct pending){rule, GRAMMAR_NONE, 0, false};
        push(m, m->g->rules[rule].entry, PENDING | m->n_pending++);
    }
    add_link(m, &m->pending[m->rule_pending[rule]], frame, next, 0);
    if (m->g->rules[rule].is_nullable) push(m, next, frame);
}

static void leave(struct grammar_matcher *m, uint32_t frame) {
    /* the rule matched the empty text; call() has already continued after it */
    if (frame & PENDING) return;
    uint32_t links = object_at(m, frame)[0], n = object_n(m, links);
    if (n == 1) {
        m->step_flags |= links == m->links_root ? STATE_COMPLETE : STATE_EXIT;
        return;
    }
    for (uint32_t i = 0; i < n && !m->is_full; i += 2)
        push(m, object_at(m, links)[i + 1], object_at(m, links)[i]);
}

/* Returns the same frame with its count incremented and, unless prop is GRAMMAR_NONE, a property marked. */
static uint32_t advance(struct grammar_matcher *m, uint32_t frame, uint32_t prop, bool count) {
    uint32_t data = object_at(m, frame)[1], n = object_n(m, data);
    memcpy(m->buf, object_at(m, data), n * 4);
    if (count) {
        const struct grammar_rule *r = &m->g->rules[m->buf[0]];
        const struct grammar_object *o =
            r->object == GRAMMAR_NONE ? NULL : &m->g->objects[r->object];
        uint32_t min = o ? o->min : r->min, max = o ? o->max : r->max;
        /* without a maximum, counting past the minimum has no effect */
        if (max != UINT32_MAX || m->buf[1] < min) m->buf[1]++;
    }
    if (prop != GRAMMAR_NONE) m->buf[2 + prop / 32] |= 1u << prop % 32;
    uint32_t made[2] = {object_at(m, frame)[0], match_intern(m, OBJ_DATA, m->buf, n)};
    return made[1] ? match_intern(m, OBJ_FRAME, made, 2) : 0;
}

struct room {           /* what an object's frame still allows */
    uint32_t n_missing; /* required properties not seen yet */
    bool optional;      /* another property that is not required may occur */
    uint32_t count;
};

static uint32_t half(uint64_t w, uint32_t k) { return (uint32_t)(w >> (k % 2 * 32)); }

static struct room object_room(const struct grammar_matcher *m, const struct grammar_object *o,
                               const uint32_t *data) {
    struct room room = {.count = data[1]};
    const uint64_t *required = m->g->words + o->first_word;
    for (uint32_t k = 0; k < 2 * o->n_word; k++)
        room.n_missing += (uint32_t)__builtin_popcount(half(required[k / 2], k) & ~data[2 + k]);
    room.optional = o->max == UINT32_MAX || room.count + room.n_missing < o->max;
    return room;
}

static bool has_bit(const uint64_t *w, uint32_t k) { return w[k / 64] >> k % 64 & 1; }

static bool guard_passes(const struct grammar_matcher *m, const struct grammar_node *n,
                         const uint32_t *data) {
    if (n->op == G_LT) return data[1] < n->a;
    if (n->op == G_GE) return data[1] >= n->a;
    const struct grammar_object *o = &m->g->objects[n->c];
    const uint64_t *required = m->g->words + o->first_word, *usable = required + o->n_word;
    struct room room = object_room(m, o, data);
    switch ((enum grammar_op)n->op) {
    case G_FREE:
        return !(data[2 + n->a / 32] >> n->a % 32 & 1) &&
               (room.optional || has_bit(required, n->a));
    case G_ROOM: return room.optional;
    case G_CLOSE: return room.n_missing == 0 && room.count >= o->min;
    default: break; /* G_MORE */
    }
    if (room.n_missing || (o->has_other && room.optional)) return true;
    for (uint32_t k = 0; room.optional && k < 2 * o->n_word; k++)
        if (half(usable[k / 2], k) & ~data[2 + k]) return true;
    return false;
}

static void expand(struct grammar_matcher *m, struct conf c) {
    const struct grammar_node *n = &m->g->nodes[c.node];
    uint32_t frame = c.frame;
    if (!n->is_live) return;
    if ((frame & PENDING) && n->op >= G_LT) { /* the builder never makes this: see grammar_impl.h */
        m->is_full = true;
        return;
    }
    switch ((enum grammar_op)n->op) {
    case G_BYTES:
        if (m->n_leaf < m->cap_conf) m->leaves[m->n_leaf++] = c;
        else m->is_full = true;
        return;
    case G_ALT:
        for (uint32_t k = 0; k < n->b && !m->is_full; k++) push(m, m->g->edges[n->a + k].to, frame);
        return;
    case G_CALL: call(m, n->a, n->b, frame); return;
    case G_RET: leave(m, frame); return;
    case G_INC: frame = advance(m, frame, GRAMMAR_NONE, true); break;
    case G_TAKE: {
        const struct grammar_object *o = &m->g->objects[n->c];
        frame = advance(m, frame, n->a, o->min > 0 || o->max != UINT32_MAX);
        break;
    }
    default:
        if (!guard_passes(m, n, object_at(m, object_at(m, frame)[1]))) return;
        if (n->op == G_ROOM) {
            const struct grammar_object *o = &m->g->objects[n->c];
            if (o->min > 0 || o->max != UINT32_MAX) frame = advance(m, frame, GRAMMAR_NONE, true);
        }
        break;
    }
    if (frame) push(m, n->b, frame);
}

static uint32_t new_data(struct grammar_matcher *m, uint32_t rule) {
    const struct grammar_rule *r = &m->g->rules[rule];
    uint32_t n = 2;
    m->buf[0] = r->counts || r->object != GRAMMAR_NONE ? rule : GRAMMAR_NONE;
    m->buf[1] = 0;
    if (r->object != GRAMMAR_NONE) {
        n += 2 * m->g->objects[r->object].n_word;
        memset(m->buf + 2, 0, (n - 2) * 4);
    }
    return match_intern(m, OBJ_DATA, m->buf, n);
}

/* Interns pending frame i, whose callers are already final. */
static uint32_t make_frame(struct grammar_matcher *m, struct pending *p) {
    uint32_t n = 0;
    uint32_t data = new_data(m, p->rule);
    for (uint32_t l = p->first_link; l != GRAMMAR_NONE; l = m->links[l].next) {
        uint32_t frame = m->links[l].frame;
        if (2 * n + 2 > m->cap_buf) {
            m->is_full = true;
            return 0;
        }
        m->buf[2 * n] = frame & PENDING ? m->pending[frame & ~PENDING].frame : frame;
        m->buf[2 * n++ + 1] = m->links[l].node;
    }
    n = sort_pairs(m->buf, n);
    uint32_t made[2] = {match_intern(m, OBJ_LINKS, m->buf, 2 * n), data};
    return made[0] && data ? match_intern(m, OBJ_FRAME, made, 2) : 0;
}

/* Returns the final handle of pending frame i. Callers are finished first, with an explicit stack in `work`, which
 * is unused by now. */
static uint32_t finish_frame(struct grammar_matcher *m, uint32_t i) {
    uint32_t n = 0;
    m->work[n++].node = i;
    while (n && !m->is_full) {
        struct pending *p = &m->pending[m->work[n - 1].node];
        bool waits = false;
        for (uint32_t l = p->first_link; !p->is_open && l != GRAMMAR_NONE; l = m->links[l].next) {
            uint32_t frame = m->links[l].frame;
            if (!(frame & PENDING) || m->pending[frame & ~PENDING].frame) continue;
            if (n >= m->cap_conf) {
                m->is_full = true;
                return 0;
            }
            m->work[n++].node = frame & ~PENDING;
            waits = true;
        }
        p->is_open = true;
        if (waits) continue;
        if (!p->frame) p->frame = make_frame(m, p);
        n--;
    }
    return m->is_full ? 0 : m->pending[i].frame;
}

/* Interns the leaves and flags as a state. */
static uint32_t make_state(struct grammar_matcher *m) {
    if (m->n_leaf == 0 && m->step_flags == 0) return HANDLE_DEAD;
    for (uint32_t i = 0; i < m->n_leaf && !m->is_full; i++)
        if (m->leaves[i].frame & PENDING) {
            uint32_t k = m->leaves[i].frame & ~PENDING;
            m->leaves[i].frame = m->pending[k].frame ? m->pending[k].frame : finish_frame(m, k);
        }
    if (m->is_full || 3 + 2 * m->n_leaf > m->cap_buf) {
        m->is_full = true;
        return 0;
    }
    m->buf[0] = m->buf[1] = 0;
    m->buf[2] = m->step_flags;
    memcpy(m->buf + 3, m->leaves, m->n_leaf * sizeof *m->leaves);
    uint32_t n = sort_pairs(m->buf + 3, m->n_leaf);
    return match_intern(m, OBJ_STATE, m->buf, 3 + 2 * n);
}

static void begin_closure(struct grammar_matcher *m) {
    if (++m->stamp == 0) {
        memset(m->seen_stamp, 0, m->cap_seen * sizeof *m->seen_stamp);
        memset(m->rule_stamp, 0, m->g->n_rule * sizeof *m->rule_stamp);
        m->stamp = 1;
    }
    m->n_seen = m->n_work = m->n_leaf = m->n_pending = m->n_link = m->step_flags = 0;
}

static uint32_t run_closure(struct grammar_matcher *m) {
    while (m->n_work && !m->is_full) expand(m, m->work[--m->n_work]);
    return m->is_full ? 0 : make_state(m);
}

uint32_t match_closure(struct grammar_matcher *m, const struct conf *confs, uint32_t n) {
    begin_closure(m);
    for (uint32_t i = 0; i < n; i++) push(m, confs[i].node, confs[i].frame);
    return run_closure(m);
}

static uint32_t target(const struct grammar *g, const struct grammar_node *n, uint8_t byte) {
    const struct grammar_edge *e = g->edges + n->a;
    uint32_t lo = 0, hi = n->b;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (e[mid].hi < byte) lo = mid + 1;
        else hi = mid;
    }
    return lo < n->b && e[lo].lo <= byte ? e[lo].to : GRAMMAR_NONE;
}

uint32_t match_step_slow(struct grammar_matcher *m, uint32_t s, uint8_t byte) {
    if (m->words[s + 1] == 0) {
        if (m->n_row >= m->cap_row) {
            m->is_full = true;
            return 0;
        }
        memset(m->rows + (size_t)m->n_row * m->g->n_class, 0, m->g->n_class * sizeof *m->rows);
        m->words[s + 1] = m->n_row++;
    }
    begin_closure(m);
    const uint32_t *p = object_at(m, s);
    for (uint32_t i = 3, n = object_n(m, s); i < n; i += 2) {
        uint32_t to = target(m->g, &m->g->nodes[p[i]], byte);
        if (to != GRAMMAR_NONE) push(m, to, p[i + 1]);
    }
    uint32_t next = run_closure(m);
    m->rows[(size_t)m->words[s + 1] * m->g->n_class + m->g->class_of[byte]] = next;
    return next;
}

/* ---- garbage collection ---- */

bool match_is_crowded(const struct grammar_matcher *m) {
    return m->is_full || m->n_word > m->cap_word / 4 * 3 || m->n_row > m->cap_row / 4 * 3 ||
           m->n_object > m->cap_table / 2;
}

/* Copies object h to the spare array, once: the old header becomes a mark, and the word after it becomes the new
 * handle. Every object has at least one word of content. */
static uint32_t forward(struct grammar_matcher *m, uint32_t h, uint32_t *n_spare) {
    if (h < HANDLE_FIRST) return h;
    if (m->words[h] == UINT32_MAX) return m->words[h + 1];
    uint32_t n = object_n(m, h) + 1, to = *n_spare;
    memcpy(m->spare + to, m->words + h, n * 4);
    *n_spare += n;
    m->words[h] = UINT32_MAX;
    m->words[h + 1] = to;
    return to;
}

static void forward_content(struct grammar_matcher *m, uint32_t h, uint32_t *n_spare) {
    uint32_t *p = m->spare + h + 1, n = m->spare[h] & 0x0fffffff;
    switch ((enum object_kind)(m->spare[h] >> 28)) {
    case OBJ_DATA: break;
    case OBJ_LINKS:
        for (uint32_t i = 0; n > 1 && i < n; i += 2) p[i] = forward(m, p[i], n_spare);
        if (n > 1) sort_pairs(p, n / 2);
        break;
    case OBJ_FRAME:
        p[0] = forward(m, p[0], n_spare);
        p[1] = forward(m, p[1], n_spare);
        break;
    case OBJ_STATE:
        p[0] = p[1] = 0;
        for (uint32_t i = 3; i < n; i += 2) p[i + 1] = forward(m, p[i + 1], n_spare);
        sort_pairs(p + 3, (n - 3) / 2);
        break;
    }
}

int match_collect(struct grammar_matcher *m) {
    uint32_t n_spare = HANDLE_FIRST;
    m->links_bottom = forward(m, m->links_bottom, &n_spare);
    m->links_root = forward(m, m->links_root, &n_spare);
    m->data_none = forward(m, m->data_none, &n_spare);
    m->start = forward(m, m->start, &n_spare);
    for (struct grammar_state *s = m->states; s; s = s->next) {
        s->now = forward(m, s->now, &n_spare);
        s->origin = forward(m, s->origin, &n_spare);
        for (uint64_t i = s->oldest; i < s->n_token; i++) {
            uint32_t *slot = &s->before[i % GRAMMAR_MAX_REWIND];
            *slot = forward(m, *slot, &n_spare);
        }
    }
    for (uint32_t h = HANDLE_FIRST; h < n_spare; h += (m->spare[h] & 0x0fffffff) + 1)
        forward_content(m, h, &n_spare);
    uint32_t *swap = m->words;
    m->words = m->spare;
    m->spare = swap;
    m->n_word = n_spare;
    m->n_row = 1;
    m->n_object = 0;
    m->is_full = false;
    memset(m->table, 0, m->cap_table * sizeof *m->table);
    for (uint32_t h = HANDLE_FIRST; h < n_spare; h += object_n(m, h) + 1) {
        uint64_t hash =
            content_hash((enum object_kind)(m->words[h] >> 28), object_at(m, h), object_n(m, h));
        uint32_t i = (uint32_t)hash & (m->cap_table - 1);
        while (m->table[i]) i = (i + 1) & (m->cap_table - 1);
        m->table[i] = h;
        m->n_object++;
    }
    mask_flush(m);
    return m->n_word > m->cap_word / 2 || m->n_object > m->cap_table / 2 ? CHIMERE_ELIMIT : 0;
}

/* ---- matcher and states ---- */

static uint32_t power_of_two(size_t n) {
    uint32_t p = 1024;
    while (p < 1u << 27 && p < n) p *= 2;
    return p;
}

static int alloc_matcher(struct grammar_matcher *m, size_t cache_bytes) {
    /* of the cache: 1/4 objects (both arrays), 1/16 table, 3/16 rows; masks use the rest */
    m->cap_word = (uint32_t)(cache_bytes / 8 / 4);
    m->cap_table = power_of_two(cache_bytes / 16 / 4);
    m->cap_row = (uint32_t)(cache_bytes / 16 * 3 / (m->g->n_class * 4)) + 2;
    m->cap_conf = 1 << 15;
    m->cap_seen = 1 << 16;
    m->cap_pending = 1 << 14;
    m->cap_buf = 2 * m->cap_conf + 8 + 2 * (GRAMMAR_MAX_PROP / 32);
    m->words = mem_alloc_array(m->cap_word, 4);
    m->spare = mem_alloc_array(m->cap_word, 4);
    m->table = mem_alloc_array(m->cap_table, 4);
    m->rows = mem_alloc_array((size_t)m->cap_row * m->g->n_class, 4);
    m->work = mem_alloc_array(m->cap_conf, sizeof *m->work);
    m->leaves = mem_alloc_array(m->cap_conf, sizeof *m->leaves);
    m->seen = mem_alloc_array(m->cap_seen, sizeof *m->seen);
    m->seen_stamp = mem_alloc_array(m->cap_seen, 4);
    m->pending = mem_alloc_array(m->cap_pending, sizeof *m->pending);
    m->links = mem_alloc_array(m->cap_conf, sizeof *m->links);
    m->rule_stamp = mem_alloc_array(m->g->n_rule, 4);
    m->rule_pending = mem_alloc_array(m->g->n_rule, 4);
    m->buf = mem_alloc_array(m->cap_buf, 4);
    return m->words && m->spare && m->table && m->rows && m->work && m->leaves && m->seen &&
                   m->seen_stamp && m->pending && m->links && m->rule_stamp && m->rule_pending &&
                   m->buf
               ? 0
               : CHIMERE_ENOMEM;
}

int grammar_matcher_new(struct grammar_matcher **out, const struct grammar *g,
                        const struct grammar_vocab *v, size_t cache_bytes, struct err *e) {
    *out = NULL;
    if (cache_bytes == 0) cache_bytes = (size_t)64 << 20;
    if (cache_bytes < (size_t)4 << 20) cache_bytes = (size_t)4 << 20;
    if (cache_bytes > (size_t)4 << 30) cache_bytes = (size_t)4 << 30;
    struct grammar_matcher *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "grammar: out of memory");
    m->g = g;
    m->v = v;
    int rc = alloc_matcher(m, cache_bytes);
    if (rc == 0) rc = mask_init(m, cache_bytes / 2);
    if (rc == 0) {
        uint32_t bottom = 0, root = 1, none[2] = {GRAMMAR_NONE, 0};
        m->n_word = HANDLE_FIRST;
        m->n_row = 1;
        m->links_bottom = match_intern(m, OBJ_LINKS, &bottom, 1);
        m->links_root = match_intern(m, OBJ_LINKS, &root, 1);
        m->data_none = match_intern(m, OBJ_DATA, none, 2);
        /* The root rule runs below a frame that calls it; when the root rule returns, the text is complete. */
        uint32_t top[2] = {m->links_root, new_data(m, g->root)};
        struct conf start = {g->rules[g->root].entry, match_intern(m, OBJ_FRAME, top, 2)};
        m->start = match_closure(m, &start, 1);
        if (!m->start) rc = CHIMERE_ELIMIT;
    }
    if (rc) {
        grammar_matcher_free(m);
        return err_set(e, rc,
                       rc == CHIMERE_ENOMEM ? "grammar: out of memory"
                                            : "grammar: too many alternatives at its start");
    }
    *out = m;
    return 0;
}

void grammar_matcher_free(struct grammar_matcher *m) {
    if (!m) return;
    mask_fini(m);
    mem_free(m->words), mem_free(m->spare), mem_free(m->table), mem_free(m->rows),
        mem_free(m->work);
    mem_free(m->leaves), mem_free(m->seen), mem_free(m->seen_stamp), mem_free(m->pending);
    mem_free(m->links), mem_free(m->rule_stamp), mem_free(m->rule_pending), mem_free(m->buf);
    mem_free(m);
}

static void enlist(struct grammar_state *s) {
    s->prev = NULL;
    s->next = s->m->states;
    if (s->next) s->next->prev = s;
    s->m->states = s;
}

int grammar_state_new(struct grammar_state **out, struct grammar_matcher *m, struct err *e) {
    struct grammar_state *s = *out = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "grammar: out of memory");
    s->m = m;
    s->now = s->origin = m->start;
    enlist(s);
    return 0;
}

int grammar_state_fork(struct grammar_state **out, const struct grammar_state *from,
                       struct err *e) {
    struct grammar_state *s = *out = mem_alloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "grammar: out of memory");
    *s = *from;
    enlist(s);
    return 0;
}

void grammar_state_free(struct grammar_state *s) {
    if (!s) return;
    if (s->prev) s->prev->next = s->next;
    else s->m->states = s->next;
    if (s->next) s->next->prev = s->prev;
    mem_free(s);
}

void grammar_state_restart(struct grammar_state *s) {
    s->now = s->origin = s->m->start;
    s->n_token = s->oldest = 0;
}

static void record(struct grammar_state *s, uint32_t now) {
    s->before[s->n_token++ % GRAMMAR_MAX_REWIND] = s->now;
    if (s->n_token - s->oldest > GRAMMAR_MAX_REWIND) s->oldest = s->n_token - GRAMMAR_MAX_REWIND;
    s->now = now;
}

/* Moves s->now through the bytes as far as possible. Returns HANDLE_DEAD if a byte is not allowed, HANDLE_UNKNOWN
 * if the automaton exceeds its memory. Garbage is collected during long texts. */
static uint32_t run_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_good) {
    for (size_t i = 0; i < n; i++) {
        uint32_t next = HANDLE_DEAD;
        *n_good = i;
        if (s->now == HANDLE_ENDED) return HANDLE_DEAD;
        if (i % 64 == 0 && match_is_crowded(s->m)) match_collect(s->m);
        next = match_step(s->m, s->now, (uint8_t)bytes[i]);
        if (next == HANDLE_UNKNOWN) {
            match_collect(s->m);
            next = match_step(s->m, s->now, (uint8_t)bytes[i]);
        }
        if (next <= HANDLE_DEAD) return next;
        s->now = next;
    }
    *n_good = n;
    return s->now;
}

int grammar_accept_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_good) {
    *n_good = 0;
    s->origin = s->now;
    uint32_t reached = run_bytes(s, bytes, n, n_good), now = s->now;
    s->now = s->origin;
    if (reached == HANDLE_UNKNOWN) return CHIMERE_ELIMIT;
    if (reached == HANDLE_DEAD) return CHIMERE_EREFUSED;
    record(s, now);
    return 0;
}

int grammar_accept_token(struct grammar_state *s, int32_t id) {
    const struct grammar_vocab *v = s->m->v;
    if (id < 0 || (uint32_t)id >= v->n_vocab) return CHIMERE_EREFUSED;
    if (v->kinds[id] == GRAMMAR_TOKEN_EOG) {
        if (!grammar_is_complete(s)) return CHIMERE_EREFUSED;
        record(s, HANDLE_ENDED);
        return 0;
    }
    uint32_t first = v->piece[id], n = v->piece[id + 1] - first;
    size_t n_good;
    if (v->kinds[id] != GRAMMAR_TOKEN_TEXT || n == 0) return CHIMERE_EREFUSED;
    return grammar_accept_bytes(s, v->bytes + first, n, &n_good);
}

bool grammar_is_complete(const struct grammar_state *s) {
    return s->now == HANDLE_ENDED || (state_flags(s->m, s->now) & STATE_COMPLETE);
}

int grammar_check(const struct grammar *g, const char *text, size_t n, size_t *n_good,
                  struct err *e) {
    static const struct slice piece = {"x", 1}; /* bytes are matched without the vocabulary */
    struct grammar_vocab *v = NULL;
    struct grammar_matcher *m = NULL;
    struct grammar_state *s = NULL;
    *n_good = 0;
    int rc = grammar_vocab_new(&v, 1, &piece, NULL, e);
    if (!rc) rc = grammar_matcher_new(&m, g, v, 0, e);
    if (!rc) rc = grammar_state_new(&s, m, e);
    if (!rc) {
        rc = grammar_accept_bytes(s, text, n, n_good);
        if (!rc && !grammar_is_complete(s)) rc = CHIMERE_EREFUSED;
        if (rc && rc != CHIMERE_EREFUSED)
            err_set(e, rc, "grammar: the automaton outgrows its memory at byte %zu", *n_good);
    }
    grammar_state_free(s);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    return rc;
}

uint64_t grammar_mark(const struct grammar_state *s) { return s->n_token; }

int grammar_rewind(struct grammar_state *s, uint64_t mark) {
    if (mark > s->n_token || mark < s->oldest) return CHIMERE_EINVAL;
    if (mark == s->n_token) return 0;
    s->now = s->before[mark % GRAMMAR_MAX_REWIND];
    s->n_token = mark;
    return 0;
}

size_t grammar_forced(struct grammar_state *s, char *out, size_t max) {
    struct grammar_matcher *m = s->m;
    uint32_t h = s->now;
    size_t n = 0;
    if (match_is_crowded(m)) {
        match_collect(m);
        h = s->now;
    }
    while (n < max && h >= HANDLE_FIRST && !(state_flags(m, h) & STATE_COMPLETE)) {
        const uint32_t *p = object_at(m, h);
        int byte = -1;
        for (uint32_t i = 3; i < object_n(m, h); i += 2) {
            const struct grammar_node *node = &m->g->nodes[p[i]];
            for (uint32_t k = 0; k < node->b; k++) {
                const struct grammar_edge *e = &m->g->edges[node->a + k];
                if (e->lo != e->hi || (byte >= 0 && byte != e->lo)) return n;
                byte = e->lo;
            }
        }
        if (byte < 0) break;
        h = match_step(m, h, (uint8_t)byte);
        if (h >= HANDLE_FIRST) out[n++] = (char)byte;
    }
    return n;
}

/* Returns the child of a trie node for a byte, 0 if there is none. Siblings are in byte order. */
static uint32_t trie_child(const struct grammar_vocab *v, uint32_t node, uint8_t byte) {
    for (uint32_t n = node + 1; n < v->trie[node].end; n = v->trie[n].end)
        if (v->trie[n].byte >= byte) return v->trie[n].byte == byte ? n : 0;
    return 0;
}

int32_t grammar_forced_token(struct grammar_state *s) {
    enum { MOST_BYTES = 64 };
    const struct grammar_vocab *v = s->m->v;
    char text[MOST_BYTES];
    size_t n = grammar_forced(s, text, sizeof text);
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n && (node = trie_child(v, node, (uint8_t)text[i])); i++)
        if (v->trie[node].token < v->trie[node + 1].token)
            best = (int32_t)v->tokens[v->trie[node].token];
    return best;
}
