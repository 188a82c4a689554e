/* cmd_logits.c: prints the raw logits of given tokens, for comparisons. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "cli/args/model_args.h"
#include "model/forward.h"

const struct cfg_opt logits_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    {"tokens", 0, CFG_STR, "IDS", NULL, 0, 0, NULL, "token ids, separated by commas"},
    {"all", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "logits of every position, not just the last"},
    {"batch", 0, CFG_INT, "N", "512", 1, 65536, NULL, "tokens per forward pass"},
    {0}};

static int parse_ids(const char *s, int32_t **out, int32_t *n, struct err *e) {
    size_t cap = strlen(s) + 1;
    int32_t *ids = mem_alloc_array(cap, sizeof *ids);
    if (!ids) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (const char *p = s; *p;) {
        size_t len = strcspn(p, ", ");
        char num[24];
        int64_t v;
        snprintf(num, sizeof num, "%.*s", (int)(len < 23 ? len : 23), p);
        if (!str_to_i64(num, 0, INT32_MAX, &v)) {
            mem_free(ids);
            return err_set(e, CHIMERE_EINVAL,
                           "--tokens: expected token ids separated by commas, got '%s'", num);
        }
        ids[(*n)++] = (int32_t)v;
        p += len;
        if (*p) p++;
    }
    *out = ids;
    return *n ? 0 : err_set(e, CHIMERE_EINVAL, "--tokens: expected at least one id");
}

/* The vector of an encoder's text, or its score. */
static int print_encoded(struct model *m, const int32_t *ids, int32_t n, struct err *e) {
    struct forward *f = NULL;
    float *x = mem_alloc_array((size_t)arch_n_vector(&m->hp), sizeof *x);
    const struct encode_text text = {.tokens = ids, .n_tok = n};
    size_t n_out = m->hp.pooling == POOL_RANK ? 1 : (size_t)arch_n_vector(&m->hp);
    int rc = x ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = forward_new(&f, m, NULL, n, 1, e);
    if (!rc) rc = forward_encode(f, &text, 1, x, e);
    if (!rc && fwrite(x, sizeof *x, n_out, stdout) != n_out)
        rc = err_set(e, CHIMERE_EIO, "standard output: cannot write");
    forward_free(f);
    mem_free(x);
    return rc;
}

static int print_logits(struct model *m, const struct cfg *c, const int32_t *ids, int32_t n,
                        struct err *e) {
    const struct seq_pool_params params = {.n_slot = 1,
                                           .n_ctx = n,
                                           .k_type = model_args_type(c, "cache-type-k"),
                                           .v_type = model_args_type(c, "cache-type-v"),
                                           .log = false};
    int32_t batch = (int32_t)cfg_int(c, "batch");
    bool all = cfg_bool(c, "all");
    struct seq_pool *pool = NULL;
    struct seq *seq = NULL;
    struct forward *f = NULL;
    int rc = seq_pool_new(&pool, m, &params, e);
    if (!rc) rc = seq_new(&seq, pool, e);
    if (!rc) rc = forward_new(&f, m, pool, batch, all ? batch : 1, e);
    for (int32_t at = 0; !rc && at < n; at += batch) {
        int32_t n_tok = n - at < batch ? n - at : batch;
        bool last = at + n_tok == n;
        const struct batch_item run = {.seq = seq,
                                       .tokens = ids + at,
                                       .n_tok = n_tok,
                                       .want = all    ? WANT_ALL
                                               : last ? WANT_LAST
                                                      : WANT_NONE};
        const float *logits;
        rc = forward_run(f, &run, 1, &logits, e);
        size_t n_row = all ? (size_t)n_tok : 1;
        if (!rc && logits &&
            fwrite(logits, sizeof *logits * (size_t)m->hp.n_vocab, n_row, stdout) != n_row)
            rc = err_set(e, CHIMERE_EIO, "standard output: cannot write");
    }
    forward_free(f);
    seq_free(seq);
    seq_pool_free(pool);
    return rc;
}

int cmd_logits(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, logits_options,
                   "usage: chimere logits -m FILE --tokens 1,2,3 [--all]\n"
                   "Writes little-endian f32 logits to standard output; of an encoder, the vector\n"
                   "of the text or its score.",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    struct dev *dev = NULL;
    struct model *m = NULL;
    int32_t *ids = NULL, n = 0;
    const char *tokens = cfg_str(c, "tokens");
    int rc = tokens ? parse_ids(tokens, &ids, &n, &e)
                    : err_set(&e, CHIMERE_EINVAL, "--tokens is missing");
    if (!rc && os_is_terminal(stdout)) {
        rc = err_set(&e, CHIMERE_EINVAL, "logits: binary data would go to the terminal");
        err_hint(&e, "send it to a file or a program");
    }
    struct plan_params want = model_args_want(c, n, 1, (int32_t)cfg_int(c, "batch"));
    if (!cfg_bool(c, "all")) want.own_bytes = 0;
    if (!rc) rc = model_args_open_planned(c, &want, NULL, &dev, &m, &e);
    if (!rc) {
        rc = m->hp.is_causal ? print_logits(m, c, ids, n, &e) : print_encoded(m, ids, n, &e);
        model_close(m);
        dev->ops->close(dev);
    }
    mem_free(ids);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
