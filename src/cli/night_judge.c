#include "cli/night_judge.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/args/odo_args.h"
#include "format/gguf.h"
#include "strategy/reward.h"

enum { PROVER, GRADER };

static void add_name(struct night_judge *j, const char *name) {
    size_t n = strlen(j->name);
    snprintf(j->name + n, sizeof j->name - n, "%s%.127s", n ? " + " : "", name);
}

static void leave_out(struct night_judge *j, const struct err *e) {
    size_t n = strlen(j->why);
    snprintf(j->why + n, sizeof j->why - n, "%s%s", n ? "; " : "", e->text);
}

/* Opens a model that writes its verdicts, beside what is in memory already. */
static int open_writer(struct night_judge *j, int which, const struct cfg *c, const char *option,
                       struct err *e) {
    struct loaded *l = &j->loaded[which];
    struct load_params p;
    chat_rig_how(c, 1, &p);
    p.path = cfg_str(c, option);
    p.device = "cpu";
    p.backend = LOAD_OWN;
    p.gpus = NULL;
    p.mmproj = NULL;
    p.n_lora = 0;
    p.expert_profile = false;
    p.plan.engine.draft = NULL;
    p.plan.n_ctx = 0;
    p.plan.budget_bytes = 0;                  /* --ram is for the model that answers */
    p.plan.engine.cache.ram_bytes = 64 << 20; /* all answers have the same instruction */
    p.plan.engine.cache.disk_bytes = 0;
    p.no_fit = false;
    int rc = load_open(l, &p, e);
    if (!rc && !l->template)
        rc = err_set(e, CHIMERE_EUNSUPPORTED, "%s has no chat template", l->name);
    const struct backend_model model = {
        .m = l->model, .engine = l->engine, .tok = l->tok, .template = l->template, .n_seq = 1};
    if (!rc) rc = backend_local_new(&j->backends[which], &model, l->name, e);
    if (!rc) add_name(j, l->name);
    if (rc) err_prefix(e, "--%s", option);
    return rc;
}

static bool is_named_prm(const char *path) {
    struct gguf *g;
    if (gguf_open(&g, path, NULL)) return false;
    bool is = reward_is_named(g);
    gguf_close(g);
    return is;
}

static int open_prm(struct night_judge *j, const struct cfg *c, const char *option, struct err *e) {
    if (!is_named_prm(cfg_str(c, option))) return open_writer(j, PROVER, c, option, e);
    int rc = odo_args_prm(c, &j->scorer, &j->reward, e);
    if (!rc) add_name(j, j->scorer.name);
    return rc;
}

void night_judge_open(struct night_judge *j, const struct cfg *c,
                      const struct night_judge_files *f) {
    struct err e = {0};
    *j = (struct night_judge){.judge = {.name = j->name, .reward = f->reward}};
    if (f->reward) add_name(j, f->reward_name);
    if (f->prm && cfg_str(c, f->prm) && open_prm(j, c, f->prm, &e)) leave_out(j, &e);
    if (f->judge && cfg_str(c, f->judge) && open_writer(j, GRADER, c, f->judge, &e))
        leave_out(j, &e);
    if (j->reward) j->judge.reward = j->reward;
    j->judge.prover = j->backends[PROVER];
    j->judge.grader = j->backends[GRADER];
}

const struct judge *night_judge_used(const struct night_judge *j) {
    return j->name[0] ? &j->judge : NULL;
}

const char *night_judge_why(const struct night_judge *j) { return j->why[0] ? j->why : NULL; }

void night_judge_close(struct night_judge *j) {
    for (int i = 0; i < 2; i++) {
        if (j->backends[i]) j->backends[i]->ops->close(j->backends[i]);
        load_close(&j->loaded[i]);
    }
    reward_close(j->reward);
    encoder_rig_close(&j->scorer);
    memset(j, 0, sizeof *j);
}
