#include "cli/bench_cards.h"

#include <stdio.h>
#include <string.h>

#include "base/os/os.h"
#include "cli/args/model_args.h"
#include "engine/lease.h"

enum { IDLE_TRIES = 1000 };

/* A new engine's thread sleeps soon; only then it lends the devices. */
static int borrow(struct bench_cards *b, struct err *e) {
    for (int i = 0; i < IDLE_TRIES; i++) {
        if (engine_borrow(b->loaded.engine)) {
            b->lm = engine_lent(b->loaded.engine);
            return 0;
        }
        os_sleep_ms(10);
    }
    return err_set(e, CHIMERE_EINTERNAL, "bench: the engine does not become idle");
}

int bench_cards_open(struct bench_cards *b, const struct cfg *c, const struct plan_params *want,
                     struct err *e) {
    static const char *const alone[] = {"n-cpu-moe", "routing", "card", "speculate-as"};
    char path[4096];
    struct load_params p;
    *b = (struct bench_cards){.lm = NULL};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (cfg_is_set(c, alone[i]))
            return err_set(e, CHIMERE_EINVAL, "--gpus and --%s exclude each other", alone[i]);
    if (cfg_bool(c, "verify") || strcmp(cfg_str(c, "sms"), "0") != 0)
        return err_set(e, CHIMERE_EINVAL, "--gpus: expected neither --verify nor --sms");
    load_defaults(&p);
    p.plan = *want;
    p.plan.engine.speculate = false;
    p.plan.engine.cache.ram_bytes = 0;
    p.path = path;
    p.backend = LOAD_OWN;
    p.gpus = cfg_str(c, "gpus");
    p.split = SPLIT_TENSOR;
    p.plan.engine.link = link_way_of(cfg_str(c, "link"));
    p.n_thread = (int32_t)cfg_int(c, "threads");
    p.isa = model_args_isa(c);
    p.vram_bytes = cfg_is_set(c, "vram") ? cfg_bytes(c, "vram") : 0;
    p.plan.budget_bytes = cfg_is_set(c, "ram") ? cfg_bytes(c, "ram") : 0;
    p.quiet = cfg_bool(c, "quiet");
    int rc = model_args_path(c, path, sizeof path, e);
    if (!rc) rc = load_open(&b->loaded, &p, e);
    if (rc) return rc;
    if (!b->loaded.is_split)
        rc = err_set(e, CHIMERE_EINVAL, "--gpus: expected several GPUs, such as 0,1");
    if (!rc) rc = borrow(b, e);
    if (rc) bench_cards_close(b);
    return rc;
}

void bench_cards_close(struct bench_cards *b) {
    if (b->lm) engine_give_back(b->loaded.engine);
    b->lm = NULL;
    load_close(&b->loaded);
}

void bench_cards_stats(const struct bench_cards *b, struct link_stats *out) {
    struct link_stats all[GPUS_MAX] = {{0}};
    if (b->lm && b->lm->ops->links) b->lm->ops->links(b->lm, all);
    *out = all[0];
}

struct bench_link bench_cards_link(const struct link_stats *before, const struct link_stats *after,
                                   int32_t n_pass) {
    return (struct bench_link){.is_peer = after->is_peer,
                               .n_pass = n_pass,
                               .n_sum = (double)(after->n_sum - before->n_sum) / n_pass,
                               .n_bytes = (double)(after->n_bytes - before->n_bytes) / n_pass,
                               .us = (after->us - before->us) / n_pass};
}

void bench_cards_print(const struct bench_link *x, double pass_us) {
    printf("    exchanged    %.0f sums, %.3f MB, %.1f us: %.1f %% of %.1f us, %s\n", x->n_sum,
           x->n_bytes * 1e-6, x->us, 100 * x->us / pass_us, pass_us,
           x->is_peer ? "directly" : "through the host");
}

json_t *bench_cards_report(const struct bench_link *x) {
    return json_pack("{s:f, s:f, s:f, s:b}", "sums", x->n_sum, "bytes", x->n_bytes, "us", x->us,
                     "direct", (int)x->is_peer);
}
