#include "engine/plan_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/os/cgroup.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "format/quant.h"
#include "engine/lm.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/repack.h"
#include "kernels/link.h"
#include "model/dflash.h"
#include "model/draft_head.h"
#include "model/forward.h"
#include "model/experts/expert_slots.h"
#include "model/experts/experts.h"
#include "model/experts/tier.h"
#include "model/seq/seq_pool.h"

/* Measured: 30 MB for code and linked libraries, and 0.2 KB per token of the vocabulary for its piece and merges. */
enum { PROGRAM_BYTES = 32 << 20, TOKEN_BYTES = 256 };
enum {
    /* if at least this many layers have their experts on the host, one or two more may move there to make room for the
     * staging buffers, which make prompts faster */
    STREAM_LAYERS = 8,
    /* one layer in so many may stay on the processor before slots for experts are faster */
    FEW_LAYERS = 12
};
enum { RECORD_WASTE = 64 }; /* lost to alignment, per part of an expert */
/* A file of more than 1 / READ_SHARE of the available memory is read without the page cache, which it would fill, with at
 * most READ_BYTES of memory. */
enum { READ_SHARE = 4, READ_BYTES = 512 << 20 };
enum { RESERVE_BYTES = 256 << 20 }; /* for the tokenizer, requests and the rest of the machine */

/* ---- available memory ---- */

static bool read_number(const char *path, const char *field, uint64_t *out) {
    char *text;
    size_t n;
    unsigned long long v;
    if (file_read(path, 1 << 16, &text, &n, NULL)) return false;
    const char *p = field ? strstr(text, field) : text;
    bool ok = p && sscanf(p + (field ? strlen(field) : 0), "%llu", &v) == 1;
    mem_free(text);
    if (ok) *out = v;
    return ok;
}

uint64_t plan_available_bytes(void) {
    uint64_t bytes = 0;
    struct cgroup_limits l;
    if (read_number("/proc/meminfo", "MemAvailable:", &bytes)) bytes *= 1024;
    else bytes = os_memory_bytes() / 2;
    cgroup_read(NULL, NULL, &l);
    return l.memory_bytes < bytes ? l.memory_bytes : bytes;
}

/* ---- required memory ---- */

static bool weight_of(const struct gguf_tensor *t, struct weight *out) {
    uint64_t row = 0;
    if (!quant_row_bytes(t->type, t->ne[0], &row)) return false;
    *out = (struct weight){.type = t->type,
                           .n_in = (int64_t)t->ne[0],
                           .n_out = (int64_t)t->ne[1],
                           .n_mat = (int64_t)t->ne[2],
                           .row_bytes = row,
                           .mat_bytes = row * t->ne[1]};
    return true;
}

static uint64_t device_bytes(struct dev *d, const struct gguf_tensor *t) {
    struct weight w;
    if (t->n_elements == t->ne[0]) return (t->n_elements * sizeof(float) + 511) & ~(uint64_t)511;
    if (!weight_of(t, &w)) return t->n_bytes;
    return (d->ops->prepared_bytes(d, &w) + 255) & ~(uint64_t)255;
}

/* Bytes of one of t's matrices in a record of the host's pool. */
static uint64_t record_bytes(const struct gguf_tensor *t) {
    struct weight w;
    uint64_t own = weight_of(t, &w) ? repack_bytes(&w) : 0;
    return (own ? own : t->n_bytes) / t->ne[2] + RECORD_WASTE;
}

static void note_part(struct blueprint *b, const struct gguf_tensor *t) {
    uint64_t n = t->n_bytes / t->ne[2];
    b->part_bytes = n > b->part_bytes ? n : b->part_bytes;
}

/* Host memory of a weight. The processor multiplies some types from the file's form, without repacking. */
static uint64_t host_bytes(struct dev *host, const struct gguf_tensor *t) {
    if (t->n_elements == t->ne[0]) return t->n_elements * sizeof(float);
    uint64_t n = device_bytes(host, t);
    return n ? n : t->n_bytes;
}

static bool is_table(const struct gguf_tensor *t) {
    static const char *const names[] = {"token_embd.weight", "position_embd.weight",
                                        "token_types.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(t->name, names[i]) == 0) return true;
    return false;
}

/* Returns true if another device has the tensor: a layer outside the part, or the output head if the part has none. */
static bool is_elsewhere(const struct blueprint *b, const struct gguf_tensor *t) {
    int il = -1;
    if (!b->part.end) return false;
    if (sscanf(t->name, "blk.%d.", &il) == 1) /* prediction blocks follow the last layer */
        return il < b->part.first || (il >= b->part.end && b->m->hp.no_head);
    return is_table(t) ? b->part.first > 0 : b->m->hp.no_head;
}

/* Whether t can be in host memory beside the device, by itself or as one of many. */
static bool can_move(const struct blueprint *b, const struct gguf_tensor *t) {
    return strstr(t->name, "_exps.weight") ||
           (b->is_dense &&
            (str_ends(t->name, ".ffn_gate.weight") || str_ends(t->name, ".ffn_up.weight") ||
             str_ends(t->name, ".ffn_down.weight")));
}

static void count_tensor(struct blueprint *b, const struct gguf_tensor *t, bool is_tied,
                         int32_t place[ARCH_MAX_LAYERS]) {
    const struct hparams *hp = &b->m->hp;
    bool table = is_table(t);
    int il = -1;
    b->file_bytes += t->n_bytes;
    b->has_expert_bias |= strstr(t->name, "_exps.bias") != NULL;
    b->has_tails |= str_ends(t->name, WEIGHT_TAIL);
    if (table && is_tied) b->weight_bytes += b->dev ? device_bytes(b->dev, t) : t->n_bytes;
    bool moves = can_move(b, t) && sscanf(t->name, "blk.%d.", &il) == 1 && il >= 0 &&
                 il < hp->n_layer && il < ARCH_MAX_LAYERS;
    if (!b->dev) {
        uint64_t own = table || !b->host ? t->n_bytes : host_bytes(b->host, t);
        b->weight_bytes += own;
        if (!moves || b->is_dense || !t->ne[2]) return;
        b->disk_bytes += own;
        b->record_bytes += own / t->ne[2] + RECORD_WASTE;
        note_part(b, t);
        return;
    }
    if (table) return;
    uint64_t n = device_bytes(b->dev, t);
    b->weight_bytes += n;
    if (!moves) return;
    b->expert_dev[place[il]] += n;
    b->expert_host[place[il]] += t->n_bytes;
    if (b->is_dense || !t->ne[2]) return;
    b->expert_record[place[il]] += record_bytes(t);
    note_part(b, t);
}

static void read_name(struct memory_plan *out, const struct gguf *g, const char *path) {
    const struct gguf_kv *kv = gguf_find(g, "general.name");
    uint64_t cursor = 0;
    struct slice s;
    const char *base = strrchr(path, '/');
    snprintf(out->name, sizeof out->name, "%s", base ? base + 1 : path);
    if (kv && gguf_next_str(kv, &cursor, &s) && s.n)
        snprintf(out->name, sizeof out->name, "%.*s", (int)(s.n < 127 ? s.n : 127), s.p);
}

static int read_header(struct memory_plan *out, struct blueprint *b, const char *path,
                       struct err *e) {
    struct gguf *g;
    int32_t place[ARCH_MAX_LAYERS] = {0};
    int rc = gguf_open(&g, path, e);
    if (rc) return rc;
    read_name(out, g, path);
    if (b->foreign) {
        rc = plan_foreign_read(b->foreign, g, e);
        gguf_close(g);
        return rc;
    }
    b->m = mem_zalloc(sizeof *b->m);
    rc = b->m ? hparams_read(&b->m->hp, g, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = hparams_cut(&b->m->hp, b->part, e);
    if (!rc && b->n_rank > 1) rc = slice_new(&b->slice, &b->m->hp, g, b->rank, b->n_rank, e);
    for (int32_t il = 0; !rc && il < b->m->hp.n_layer && il < ARCH_MAX_LAYERS; il++)
        if (experts_can_move(&b->m->hp, il)) {
            b->is_dense = !(b->m->hp.layer[il].ffn & FFN_MOE);
            place[il] = b->n_moe++;
        }
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    bool is_tied = !rc && embd && !gguf_find_tensor(g, "output.weight") && b->m->hp.is_causal;
    /* a tied embedding is used for lookup and for the output product; in host memory a float table serves both */
    if (is_tied && !b->dev) is_tied = quant_traits(embd->type)->block_elements > 1;
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_tensor own = *t;
        bool multiplies = is_tied && t == embd && !b->m->hp.no_head;
        bool here = !b->slice || slice_tensor(b->slice, t, &own);
        if (b->slice && multiplies) slice_head(b->slice, t, &own);
        if (here && (multiplies || !is_elsewhere(b, t))) count_tensor(b, &own, multiplies, place);
    }
    gguf_close(g);
    return rc;
}

/* Moves the experts of as few layers as possible to the host, so that the rest fits the device. */
static void place_experts(struct memory_plan *p, const struct blueprint *b, uint64_t rest) {
    p->weight_bytes = b->weight_bytes;
    p->expert_bytes = 0;
    p->n_moe = b->n_moe;
    p->is_dense = b->is_dense;
    for (p->n_cpu_moe = 0; p->n_cpu_moe < b->n_cpu_most; p->n_cpu_moe++) {
        if (p->n_cpu_moe >= b->n_cpu_least && p->weight_bytes + rest <= p->budget_bytes) break;
        p->weight_bytes -= b->expert_dev[p->n_cpu_moe];
        p->expert_bytes += b->expert_host[p->n_cpu_moe];
    }
}

/* Gives slots for experts what the rest leaves of the budget. */
static void place_slots(struct memory_plan *p, const struct blueprint *b, uint64_t rest) {
    const struct hparams *hp = &b->m->hp;
    uint64_t all = 0;
    for (int32_t i = 0; i < b->n_moe; i++) all += b->expert_dev[i];
    rest += b->weight_bytes - all;
    uint64_t least = expert_slots_bytes(hp, b->expert_dev, b->n_moe, 0);
    uint64_t most = expert_slots_bytes(hp, b->expert_dev, b->n_moe, 1);
    uint64_t left = p->budget_bytes > rest ? p->budget_bytes - rest : 0;
    p->slot_bytes = left < least ? least : left > most ? most : left;
    p->weight_bytes = b->weight_bytes - all + p->slot_bytes;
    p->expert_bytes = all;
    p->n_moe = b->n_moe;
    p->n_cpu_moe = 0;
    p->staging_bytes = 0;
}

/* Plans two buffers for a layer's experts, so that the device can compute long prompts. They are planned if the device
 * has room. If the experts of many layers are on the host anyway, more may move there to make room. The experts are
 * read from the mapped file each time, so host memory must hold the file's experts in addition to the repacked ones. */
static void plan_staging(struct memory_plan *p, const struct blueprint *b, uint64_t rest) {
    uint64_t most = 0;
    p->staging_bytes = 0;
    if (!p->n_cpu_moe || !experts_stream(&b->m->hp, p->engine.n_batch)) return;
    for (int32_t i = 0; i < b->n_moe; i++) most = b->expert_dev[i] > most ? b->expert_dev[i] : most;
    bool may_move = b->n_cpu_most > b->n_cpu_least && p->n_cpu_moe >= STREAM_LAYERS;
    if (may_move) place_experts(p, b, rest + 2 * most);
    uint64_t host = p->program_bytes + 2 * p->expert_bytes;
    if (p->weight_bytes + rest + 2 * most <= p->budget_bytes && host <= p->host_budget_bytes)
        p->staging_bytes = 2 * most;
    else if (may_move) place_experts(p, b, rest);
    p->scratch_bytes += p->staging_bytes;
}

/* With experts on disk, the pool gets what the other parts leave of the budget. */
static void count_pool(struct memory_plan *p, const struct blueprint *b) {
    p->scratch_bytes += tier_own_bytes(b->part_bytes);
    uint64_t rest = b->weight_bytes - b->disk_bytes + p->cache_bytes + p->state_bytes +
                    p->scratch_bytes + p->program_bytes;
    uint64_t left = p->budget_bytes > rest ? p->budget_bytes - rest : 0;
    p->pool_bytes = left > b->least_pool ? left : b->least_pool;
    if (p->pool_bytes > b->disk_bytes) p->pool_bytes = b->disk_bytes;
    p->disk_bytes = b->disk_bytes;
    p->weight_bytes = b->weight_bytes - b->disk_bytes + p->pool_bytes;
}

static int32_t least_slots(const struct blueprint *b) {
    return tier_least_slots(b->m->hp.moe.n_expert, b->m->hp.moe.n_used);
}

/* The experts of the host's layers are on disk; their pool gets what the rest leaves of the host's memory. */
static void count_host_pool(struct memory_plan *p, const struct blueprint *b) {
    uint64_t record = 0;
    for (int32_t i = 0; i < p->n_cpu_moe; i++) record += b->expert_record[i];
    p->host_bytes += tier_own_bytes(b->part_bytes) - p->expert_bytes;
    uint64_t left = p->host_budget_bytes > p->host_bytes ? p->host_budget_bytes - p->host_bytes : 0;
    uint64_t least = record * (uint64_t)least_slots(b);
    p->disk_bytes = record * (uint64_t)b->m->hp.moe.n_expert;
    p->pool_bytes = left < least ? least : left > p->disk_bytes ? p->disk_bytes : left;
    p->expert_bytes = p->pool_bytes;
    p->host_bytes += p->pool_bytes;
}

/* Memory of a drafter's file. Zero if the file cannot be read; opening it later reports that error. */
static struct dflash_bytes drafter_bytes(const struct model *m, const struct engine_params *g) {
    struct dflash_bytes n = {.weights = 0};
    const struct dflash_params p = {.n_slot = g->n_seq,
                                    .n_ctx = g->n_ctx,
                                    .n_ctx_seq = g->n_ctx_seq,
                                    .k_type = g->k_type,
                                    .v_type = g->v_type};
    struct err ignored;
    if (g->draft && g->speculate) dflash_plan(g->draft, m, &p, g->n_batch, &n, &ignored);
    return n;
}

/* Memory of the rows of the head that drafts read. */
static uint64_t head_bytes(const struct blueprint *b, const struct engine_params *g) {
    const struct hparams *hp = &b->m->hp;
    if (!g->speculate || (!g->draft && !hp->n_nextn)) return 0;
    return draft_head_bytes(hp, b->dev ? b->dev : b->host, g->n_draft_head);
}

static void count_tiers(struct memory_plan *p, const struct blueprint *b) {
    uint64_t all = 0;
    if (b->is_dense) return;
    for (int32_t i = 0; i < b->n_moe; i++) all += b->expert_dev[i];
    p->tier_bytes[PLAN_DEVICE] = b->dev ? p->weight_bytes + all - b->weight_bytes : 0;
    p->tier_bytes[PLAN_MEMORY] = b->dev          ? p->expert_bytes
                                 : b->least_pool ? p->pool_bytes
                                                 : b->disk_bytes;
    uint64_t disk = b->dev ? p->disk_bytes : b->disk_bytes;
    p->tier_bytes[PLAN_DISK] = disk ? disk - p->tier_bytes[PLAN_MEMORY] : 0;
}

static void count(struct memory_plan *p, const struct blueprint *b) {
    if (b->foreign) {
        plan_foreign_count(p, b->foreign);
        return;
    }
    const struct model *m = b->m;
    const struct engine_params *g = &p->engine;
    struct dflash_bytes drafter = drafter_bytes(m, g);
    struct seq_pool_params pool = {
        .n_slot = 0, .n_ctx = g->n_ctx, .k_type = g->k_type, .v_type = g->v_type};
    p->cache_bytes = seq_pool_bytes(m, &pool);
    p->cache_bytes += drafter.cache;
    p->cache_bytes_per_tok = p->cache_bytes / (uint64_t)g->n_ctx;
    uint64_t engine = engine_bytes(m, g) + drafter.cache + drafter.scratch;
    struct dev_need need = forward_need(m, g->n_ctx, g->n_batch);
    p->scratch_bytes = forward_bytes(m, g->n_batch, g->n_seq) + drafter.scratch + b->own_bytes;
    p->state_bytes =
        engine > p->cache_bytes + p->scratch_bytes ? engine - p->cache_bytes - p->scratch_bytes : 0;
    p->scratch_bytes += (uint64_t)(b->n_engine - 1) * forward_bytes(m, g->n_batch, g->n_seq);
    if (b->n_rank > 1 && b->dev)
        p->scratch_bytes += link_bytes(b->dev, b->n_rank, (int64_t)g->n_batch * m->hp.n_embd);
    if (b->n_rank > 1 && b->dev && !b->rank) /* logits of all slices */
        p->scratch_bytes += 4 * (uint64_t)lm_n_out_max(g) * (uint64_t)m->hp.n_vocab;
    p->program_bytes = PROGRAM_BYTES + (uint64_t)TOKEN_BYTES * (uint64_t)m->hp.n_vocab;
    /* needed in addition to the model's weights, wherever those are */
    p->scratch_bytes += drafter.weights + head_bytes(b, g);
    if (!b->dev) {
        p->weight_bytes = b->weight_bytes;
        p->scratch_bytes += cpu_scratch_bytes(&need, 0);
        if (b->least_pool) count_pool(p, b);
        count_tiers(p, b);
        p->total_bytes =
            p->weight_bytes + p->cache_bytes + p->state_bytes + p->scratch_bytes + p->program_bytes;
        return;
    }
    uint64_t crossing = (uint64_t)g->n_batch * (uint64_t)m->hp.n_embd * sizeof(float);
    p->scratch_bytes += b->dev->ops->scratch_bytes(b->dev, &need);
    uint64_t rest = p->cache_bytes + p->state_bytes + p->scratch_bytes;
    p->slot_bytes = p->pool_bytes = p->disk_bytes = p->staging_bytes = 0;
    if (b->uses_slots) place_slots(p, b, rest);
    else place_experts(p, b, rest);
    if (!b->uses_slots && !b->uses_disk) plan_staging(p, b, rest);
    p->total_bytes = p->weight_bytes + p->cache_bytes + p->state_bytes + p->scratch_bytes;
    p->host_bytes = p->program_bytes + p->expert_bytes;
    if (p->n_cpu_moe) p->host_bytes += cpu_scratch_bytes(&need, 0) + 2 * crossing;
    if (p->n_cpu_moe && b->uses_disk) count_host_pool(p, b);
    count_tiers(p, b);
}

static bool fits(struct memory_plan *p, const struct blueprint *b) {
    count(p, b);
    return p->total_bytes <= p->budget_bytes && p->host_bytes <= p->host_budget_bytes;
}

/* ---- choice of parameters ---- */

/* Chooses the total number of positions: as many as fit. The maximum is n_ctx_seq per sequence; the minimum is the
 * context of one sequence, or of all with full_ctx. */
static bool choose_total(struct memory_plan *p, const struct blueprint *b,
                         const struct plan_params *want) {
    struct engine_params *g = &p->engine;
    int64_t most = g->n_ctx_seq * g->n_seq, least = g->n_ctx_seq;
    g->n_ctx = most;
    if (fits(p, b)) return true;
    if (want->full_ctx) return false;
    g->n_ctx = least;
    if (!fits(p, b)) return false;
    uint64_t more =
        p->cache_bytes_per_tok ? (p->budget_bytes - p->total_bytes) / p->cache_bytes_per_tok : 0;
    g->n_ctx += (int64_t)more / KV_PAGE * KV_PAGE;
    if (g->n_ctx > most) g->n_ctx = most;
    while (g->n_ctx > least && !fits(p, b)) g->n_ctx -= KV_PAGE;
    return fits(p, b);
}

static bool choose(struct memory_plan *p, const struct blueprint *b,
                   const struct plan_params *want) {
    struct engine_params *g = &p->engine;
    int64_t train = p->n_ctx_train;
    int64_t ctx = want->n_ctx ? want->n_ctx : train < PLAN_DEFAULT_CTX ? train : PLAN_DEFAULT_CTX;
    int64_t floor_ctx = want->n_ctx || ctx < PLAN_MIN_CTX ? ctx : PLAN_MIN_CTX;
    int32_t n_seq = want->n_seq ? want->n_seq : want->n_seq_want > 0 ? want->n_seq_want : 1;
    p->reduced = false;
    for (;; ctx = ctx / 2 > floor_ctx ? ctx / 2 : floor_ctx) {
        for (int32_t n = n_seq; n >= 1; n /= 2) {
            g->n_ctx_seq = ctx;
            g->n_seq = n;
            if (choose_total(p, b, want)) return true;
            p->reduced = true;
            if (want->n_seq) break;
        }
        if (ctx <= floor_ctx) return false;
    }
}

/* Longer contexts leave less memory for experts, and reading experts from disk costs more than a longer context is
 * worth. So the pool is tried with half of the experts, then with a quarter, then with the minimum. */
static bool choose_pool(struct memory_plan *p, struct blueprint *b,
                        const struct plan_params *want) {
    int32_t least = least_slots(b);
    if (!b->disk_bytes) return false;
    for (int share = 2; share <= 4; share *= 2) {
        b->least_pool = b->disk_bytes / (uint64_t)share;
        if (b->least_pool >= b->record_bytes * (uint64_t)least && choose(p, b, want)) return true;
    }
    b->least_pool = b->record_bytes * (uint64_t)least;
    return choose(p, b, want);
}

/* Whether slots for experts are faster than leaving p->n_cpu_moe layers to the processor. Slots cost each layer about
 * 10 us to find experts, and a copy per miss; a layer on the processor costs 170 us. Measured: H200, 16 cores,
 * docs/tiers.md. */
static bool slots_pay(const struct memory_plan *p, const struct blueprint *b) {
    return p->n_cpu_moe > b->n_moe / FEW_LAYERS;
}

/* First plans with the fewest layers of host experts that the user allows, even if the context must be shortened: a
 * shorter context matters less than the speed that experts on the host cost. If that does not fit, moves layers to the
 * host, or plans slots for experts if those are faster and the host can hold all experts. If it cannot hold those of the
 * layers that move either, they are read from disk. */
static bool choose_placed(struct memory_plan *p, struct blueprint *b,
                          const struct plan_params *want) {
    int32_t fixed = want->n_cpu_moe < b->n_moe ? want->n_cpu_moe : b->n_moe;
    b->n_cpu_least = b->n_cpu_most = want->fix_cpu_moe ? fixed : 0;
    b->least_pool = 0;
    b->uses_slots = b->uses_disk = false;
    if (choose(p, b, want)) return true;
    if (b->foreign || b->has_tails) return false;
    if (!b->dev) return !want->in_memory && choose_pool(p, b, want);
    if (want->fix_cpu_moe || !b->n_moe) return false;
    b->n_cpu_most = b->n_moe;
    bool ok = choose(p, b, want);
    struct memory_plan layers = *p;
    b->uses_slots = want->expert_slots && !b->is_dense && !b->has_expert_bias &&
                    (!ok || slots_pay(p, b)) && expert_slots_are_possible(b->dev, &b->m->hp);
    if (b->uses_slots && choose(p, b, want)) return true;
    b->uses_slots = false;
    b->uses_disk = !ok && !b->is_dense && !want->in_memory;
    if (b->uses_disk && choose(p, b, want)) return true;
    *p = layers;
    return ok;
}

/* Whether p holds clearly fewer experts on the device than few. */
static bool holds_less(const struct memory_plan *p, const struct memory_plan *few) {
    if (!p->slot_bytes || !few->slot_bytes)
        return p->slot_bytes > 0 || p->n_cpu_moe > few->n_cpu_moe;
    return p->slot_bytes < few->slot_bytes / 10 * 9;
}

/* Uses a larger batch on a device if that moves no more experts to the host and does not shorten the context. */
static bool choose_batch(struct memory_plan *p, struct blueprint *b,
                         const struct plan_params *want) {
    if (want->engine.n_batch) return choose_placed(p, b, want);
    p->engine.n_batch = PLAN_BATCH;
    if (!choose_placed(p, b, want)) return false;
    if (!b->dev) return true;
    struct memory_plan few = *p;
    const struct engine_params *g = &p->engine;
    p->engine.n_batch = PLAN_DEVICE_BATCH;
    if (!choose_placed(p, b, want) || holds_less(p, &few) || g->n_seq < few.engine.n_seq ||
        g->n_ctx_seq < few.engine.n_ctx_seq || g->n_ctx < few.engine.n_ctx ||
        p->staging_bytes < few.staging_bytes)
        *p = few;
    return true;
}

int32_t plan_batch(const struct dev *dev, int32_t wanted) {
    return wanted ? wanted : dev->ops->is_host ? (int32_t)PLAN_BATCH : (int32_t)PLAN_DEVICE_BATCH;
}

/* Engines that take turns must not cost context, sequences or experts on the card. */
static bool choose_engines(struct memory_plan *p, struct blueprint *b,
                           const struct plan_params *want) {
    b->n_engine = 1;
    bool ok = choose_batch(p, b, want);
    if (!ok || want->n_engine < 2 || p->engine.n_seq < 2) return ok;
    struct memory_plan one = *p;
    b->n_engine = want->n_engine < p->engine.n_seq ? want->n_engine : p->engine.n_seq;
    const struct engine_params *g = &p->engine;
    if (!choose_batch(p, b, want) || p->n_cpu_moe > one.n_cpu_moe || g->n_seq < one.engine.n_seq ||
        g->n_ctx_seq < one.engine.n_ctx_seq || g->n_ctx / b->n_engine < g->n_ctx_seq) {
        *p = one;
        b->n_engine = 1;
    }
    return true;
}

static void set_budgets(struct memory_plan *p, const struct blueprint *b,
                        const struct plan_params *want) {
    uint64_t host = want->budget_bytes;
    if (!host) {
        uint64_t have = plan_available_bytes();
        host = have > RESERVE_BYTES ? have - RESERVE_BYTES : 0;
    }
    p->budget_bytes = p->host_budget_bytes = host;
    if (!b->dev) return;
    uint64_t have = b->dev->ops->free_bytes(b->dev);
    if (!want->vram_bytes) have = have > RESERVE_BYTES ? have - RESERVE_BYTES : 0;
    p->is_device = true;
    p->budget_bytes = want->budget_bytes == UINT64_MAX ? UINT64_MAX : have;
}

/* Plans memory for reading weights, of what is not in use yet while they are read. */
static void plan_reading(struct memory_plan *p, const struct blueprint *b) {
    if (p->pool_bytes || b->foreign || b->part.end || b->n_rank > 1) return;
    if (b->file_bytes < plan_available_bytes() / READ_SHARE) return;
    uint64_t left = p->is_device ? p->host_budget_bytes - p->host_bytes
                                 : p->budget_bytes - p->weight_bytes - p->program_bytes;
    p->read_bytes = left < READ_BYTES ? left : READ_BYTES;
}

static int refuse(const struct memory_plan *p, const struct blueprint *b,
                  const struct plan_params *want, struct err *e) {
    char need[16], have[16], weights[16], host[16], host_have[16];
    str_bytes(need, p->total_bytes);
    str_bytes(have, p->budget_bytes);
    str_bytes(weights, p->weight_bytes);
    str_bytes(host, p->host_bytes);
    str_bytes(host_have, p->host_budget_bytes);
    err_set(e, CHIMERE_ELIMIT,
            "%s does not fit: %d sequence%s of %" PRId64
            " tokens need%s %s (weights %s), and %s may be used",
            p->name, p->engine.n_seq, p->engine.n_seq > 1 ? "s" : "", p->engine.n_ctx_seq,
            p->engine.n_seq > 1 ? "" : "s", need, weights, have);
    if (p->is_device && p->host_bytes > p->host_budget_bytes)
        err_set(
            e, CHIMERE_ELIMIT,
            "%s does not fit: %s of %d layers beside the GPU need %s of memory, and %s may be used",
            p->name, p->is_dense ? "feed-forward blocks" : "experts", p->n_cpu_moe, host,
            host_have);
    if (b->has_tails && b->m->hp.moe.n_expert)
        err_hint(e,
                 "the file has tensors in two parts (*%s), so the device must hold all experts; "
                 "quantize it without --tails",
                 WEIGHT_TAIL);
    else
        err_hint(e, want->n_ctx || want->n_seq
                        ? "use a smaller --ctx or --parallel, or give neither"
                        : "use a smaller quantized type");
    return CHIMERE_ELIMIT;
}

uint64_t plan_left_bytes(const struct memory_plan *p) {
    return p->is_device ? p->host_budget_bytes - p->host_bytes : p->budget_bytes - p->total_bytes;
}

int plan_make(struct memory_plan *out, const char *path, const struct plan_params *p,
              struct err *e) {
    *out = (struct memory_plan){.engine = p->engine};
    struct blueprint *b = mem_zalloc(sizeof *b);
    if (!b) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct plan_foreign foreign = {.n_gpu_layers = p->n_gpu_layers, .mmproj = p->mmproj};
    b->dev = p->dev && !p->dev->ops->is_host ? p->dev : NULL;
    b->host = p->dev && p->dev->ops->is_host ? p->dev : NULL;
    b->foreign = p->is_foreign ? &foreign : NULL;
    b->part = p->part;
    b->rank = p->rank;
    b->own_bytes = p->own_bytes;
    b->n_rank = p->n_rank;
    int rc = read_header(out, b, path, e);
    if (!rc) {
        int64_t train = b->foreign ? foreign.n_ctx_train : b->m->hp.n_ctx_train;
        set_budgets(out, b, p);
        out->n_ctx_train = train > 0 ? train : PLAN_DEFAULT_CTX;
        if (!choose_engines(out, b, p)) rc = refuse(out, b, p, e);
        else plan_reading(out, b);
        out->n_engine = b->n_engine;
    }
    /* checkpoints may use what the plan leaves */
    uint64_t left = rc ? 0 : plan_left_bytes(out);
    if (!rc && out->engine.cache.ram_bytes > left) out->engine.cache.ram_bytes = left;
    out->kept_bytes = out->engine.cache.ram_bytes;
    slice_free(b->slice);
    mem_free(b->m);
    mem_free(b);
    return rc;
}

struct expert_placement plan_placement(const struct memory_plan *p) {
    return (struct expert_placement){.n_layer = p->n_cpu_moe,
                                     .streams = p->staging_bytes > 0,
                                     .pool_bytes = p->pool_bytes,
                                     .room_bytes =
                                         p->pool_bytes && !p->is_device ? p->cache_bytes : 0,
                                     .slot_bytes = p->slot_bytes,
                                     .read_bytes = p->read_bytes};
}

static void print_pool(const struct memory_plan *p, struct buf *out) {
    char pool[16], disk[16];
    if (p->slot_bytes) {
        str_bytes(pool, p->slot_bytes);
        str_bytes(disk, p->expert_bytes);
        buf_printf(out,
                   "  experts      %10s  of slots, for those in use; all %s are in host memory\n",
                   pool, disk);
        return;
    }
    str_bytes(pool, p->pool_bytes);
    str_bytes(disk, p->disk_bytes);
    buf_printf(out, "  experts      %10s  of %s in memory; the others are read from disk\n", pool,
               disk);
}

void plan_print(const struct memory_plan *p, struct buf *out) {
    char weights[16], cache[16], per_tok[16], state[16], scratch[16], program[16], total[16],
        budget[16], kept[16];
    char experts[16], host[16], host_budget[16];
    str_bytes(kept, p->kept_bytes);
    str_bytes(experts, p->expert_bytes);
    str_bytes(host, p->host_bytes);
    str_bytes(host_budget, p->host_budget_bytes);
    str_bytes(weights, p->weight_bytes);
    str_bytes(cache, p->cache_bytes);
    str_bytes(per_tok, p->cache_bytes_per_tok);
    str_bytes(state, p->state_bytes);
    str_bytes(scratch, p->scratch_bytes);
    str_bytes(program, p->program_bytes);
    str_bytes(total, p->total_bytes);
    str_bytes(budget, p->budget_bytes);
    buf_printf(out,
               "%s: %d sequences of at most %" PRId64 " tokens, %" PRId64 " in total%s\n"
               "  weights      %10s%s\n"
               "  cache        %10s  (%s per token)\n"
               "  state        %10s\n"
               "  activations  %10s\n",
               p->name, p->engine.n_seq, p->engine.n_ctx_seq, p->engine.n_ctx,
               p->reduced ? " (fewer than requested, to fit)" : "", weights,
               p->is_device ? "  on the GPU, like all lines down to the sum" : "", cache, per_tok,
               state, scratch);
    if (!p->is_device) buf_printf(out, "  program      %10s\n", program);
    buf_printf(out, "  in all       %10s  of %s that may be used\n", total, budget);
    if ((p->pool_bytes && !p->is_device) || p->slot_bytes) print_pool(p, out);
    if (p->is_device && (p->is_dense ? p->n_cpu_moe : p->n_moe) && !p->slot_bytes)
        buf_printf(out, "  %-12s %10s  of %d of %d layers, on the processor%s\n",
                   p->is_dense ? "feed-forward" : "experts", experts, p->n_cpu_moe, p->n_moe,
                   p->staging_bytes ? "; long prompts stream them to the GPU"
                   : p->pool_bytes  ? "; the others of these layers are read from disk"
                                    : "");
    if (p->is_device)
        buf_printf(out, "  host         %10s  of %s that may be used\n", host, host_budget);
    buf_printf(out, "  saved states %10s  at most, in addition\n", kept);
}
