#include "engine/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "model/seq_pool.h"

/* Measured: 30 MB of code and of the libraries it is linked with, and 0.2 KB for each token's piece and merges. */
enum { PROGRAM_BYTES = 32 << 20, TOKEN_BYTES = 256 };
enum { RESERVE_BYTES = 256 << 20 }; /* tokenizer, requests, the rest of the machine */

/* ---- what there is ---- */

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
    uint64_t bytes = 0, most, used;
    if (read_number("/proc/meminfo", "MemAvailable:", &bytes)) bytes *= 1024;
    else bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    if (read_number("/sys/fs/cgroup/memory.max", NULL, &most) &&
        read_number("/sys/fs/cgroup/memory.current", NULL, &used)) {
        uint64_t cache = 0; /* of files: given back when it is needed */
        read_number("/sys/fs/cgroup/memory.stat", "\nfile ", &cache);
        used -= cache < used ? cache : used;
        uint64_t left = most > used ? most - used : 0;
        if (left < bytes) bytes = left;
    }
    return bytes;
}

/* ---- what it takes ---- */

/* A model of which only the blueprint is known: enough for every *_bytes function. */
static int read_header(struct plan *out, struct model **m, const char *path, struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, path, e);
    if (rc) return rc;
    *m = mem_zalloc(sizeof **m);
    rc = *m ? hparams_read(&(*m)->hp, g, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < gguf_n_tensors(g); i++)
        out->weight_bytes += gguf_tensor_at(g, i)->n_bytes;
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    if (!rc && embd && !gguf_find_tensor(g, "output.weight") && (*m)->hp.is_causal &&
        quant_traits(embd->type)->block_elements > 1)
        out->weight_bytes += embd->n_bytes; /* rows looked up, and once more to multiply */
    const struct gguf_kv *kv = gguf_find(g, "general.name");
    uint64_t cursor = 0;
    struct slice s;
    const char *base = strrchr(path, '/');
    snprintf(out->name, sizeof out->name, "%s", base ? base + 1 : path);
    if (kv && gguf_next_str(kv, &cursor, &s) && s.n)
        snprintf(out->name, sizeof out->name, "%.*s", (int)(s.n < 127 ? s.n : 127), s.p);
    gguf_close(g);
    return rc;
}

static void count(struct plan *p, const struct model *m) {
    const struct engine_params *g = &p->engine;
    struct seq_pool_params pool = {
        .n_slot = 0, .n_ctx = g->n_ctx, .k_type = g->k_type, .v_type = g->v_type};
    p->cache_bytes = seq_pool_bytes(m, &pool);
    p->cache_bytes_per_tok = p->cache_bytes / (uint64_t)g->n_ctx;
    uint64_t engine = engine_bytes(m, g);
    struct dev_need need = forward_need(m, g->n_ctx, g->n_batch);
    p->scratch_bytes = forward_bytes(m, g->n_batch, g->n_seq);
    p->state_bytes =
        engine > p->cache_bytes + p->scratch_bytes ? engine - p->cache_bytes - p->scratch_bytes : 0;
    p->scratch_bytes += cpu_scratch_bytes(&need, 0);
    p->program_bytes = PROGRAM_BYTES + (uint64_t)TOKEN_BYTES * (uint64_t)m->hp.n_vocab;
    p->total_bytes =
        p->weight_bytes + p->cache_bytes + p->state_bytes + p->scratch_bytes + p->program_bytes;
}

static bool fits(struct plan *p, const struct model *m) {
    count(p, m);
    return p->total_bytes <= p->budget_bytes;
}

/* ---- what to run it with ---- */

/* Positions of all sequences together: as many as fit, n_ctx_seq of each at most, of one at least. */
static bool choose_total(struct plan *p, const struct model *m) {
    struct engine_params *g = &p->engine;
    int64_t most = g->n_ctx_seq * g->n_seq, least = g->n_ctx_seq;
    g->n_ctx = most;
    if (fits(p, m)) return true;
    g->n_ctx = least;
    if (!fits(p, m)) return false;
    uint64_t more =
        p->cache_bytes_per_tok ? (p->budget_bytes - p->total_bytes) / p->cache_bytes_per_tok : 0;
    g->n_ctx += (int64_t)more / KV_PAGE * KV_PAGE;
    if (g->n_ctx > most) g->n_ctx = most;
    while (g->n_ctx > least && !fits(p, m)) g->n_ctx -= KV_PAGE;
    return fits(p, m);
}

static bool choose(struct plan *p, const struct model *m, const struct plan_params *want) {
    struct engine_params *g = &p->engine;
    int64_t train = p->n_ctx_train;
    int64_t ctx = want->n_ctx ? want->n_ctx : train < PLAN_DEFAULT_CTX ? train : PLAN_DEFAULT_CTX;
    int64_t floor_ctx = want->n_ctx || ctx < PLAN_MIN_CTX ? ctx : PLAN_MIN_CTX;
    int32_t n_seq = want->n_seq ? want->n_seq : want->n_seq_want > 0 ? want->n_seq_want : 1;
    for (;; ctx = ctx / 2 > floor_ctx ? ctx / 2 : floor_ctx) {
        for (int32_t n = n_seq; n >= 1; n /= 2) {
            g->n_ctx_seq = ctx;
            g->n_seq = n;
            if (choose_total(p, m)) return true;
            p->reduced = true;
            if (want->n_seq) break;
        }
        if (ctx <= floor_ctx) return false;
    }
}

int plan_make(struct plan *out, const char *path, const struct plan_params *p, struct err *e) {
    *out = (struct plan){.engine = p->engine, .budget_bytes = p->budget_bytes};
    struct model *m = NULL;
    int rc = read_header(out, &m, path, e);
    if (!rc) {
        if (!out->budget_bytes) {
            uint64_t have = plan_available_bytes();
            out->budget_bytes = have > RESERVE_BYTES ? have - RESERVE_BYTES : 0;
        }
        out->n_ctx_train = m->hp.n_ctx_train > 0 ? m->hp.n_ctx_train : PLAN_DEFAULT_CTX;
        if (!choose(out, m, p)) {
            char need[16], have[16], weights[16];
            str_bytes(need, out->total_bytes);
            str_bytes(have, out->budget_bytes);
            str_bytes(weights, out->weight_bytes);
            rc = err_set(e, CHIMERE_ELIMIT,
                         "%s does not fit: %d sequence%s of %" PRId64
                         " tokens need%s %s (weights %s), and %s may be used",
                         out->name, out->engine.n_seq, out->engine.n_seq > 1 ? "s" : "",
                         out->engine.n_ctx_seq, out->engine.n_seq > 1 ? "" : "s", need, weights,
                         have);
            err_hint(e, p->n_ctx || p->n_seq
                            ? "give it a smaller --ctx or --parallel, or leave them to it"
                            : "take a smaller quantised type");
        }
    }
    /* what is kept between requests takes what is left */
    uint64_t left = out->budget_bytes - out->total_bytes;
    if (!rc && out->engine.cache.ram_bytes > left) out->engine.cache.ram_bytes = left;
    out->kept_bytes = out->engine.cache.ram_bytes;
    mem_free(m);
    return rc;
}

void plan_print(const struct plan *p, struct buf *out) {
    char weights[16], cache[16], per_tok[16], state[16], scratch[16], program[16], total[16],
        budget[16], kept[16];
    str_bytes(kept, p->kept_bytes);
    str_bytes(weights, p->weight_bytes);
    str_bytes(cache, p->cache_bytes);
    str_bytes(per_tok, p->cache_bytes_per_tok);
    str_bytes(state, p->state_bytes);
    str_bytes(scratch, p->scratch_bytes);
    str_bytes(program, p->program_bytes);
    str_bytes(total, p->total_bytes);
    str_bytes(budget, p->budget_bytes);
    buf_printf(out,
               "%s: %d sequences of %" PRId64 " tokens at most, %" PRId64 " together%s\n"
               "  weights      %10s\n"
               "  cache        %10s  (%s a token)\n"
               "  state        %10s\n"
               "  activations  %10s\n"
               "  program      %10s\n"
               "  in all       %10s  of %s that may be used\n"
               "  kept states  %10s  at most, beside that\n",
               p->name, p->engine.n_seq, p->engine.n_ctx_seq, p->engine.n_ctx,
               p->reduced ? " (fewer than wanted, so that it fits)" : "", weights, cache, per_tok,
               state, scratch, program, total, budget, kept);
}
