/* step_lora.c: trains an adapter on the style and format of accepted answers, by forward passes only. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "learn/step/night_step.h"

enum { LEAST_TRAIN = 16, LEAST_HELD = 6, STEPS = 300 };

static bool goes_on(void *ud) { return night_goes_on(ud); }

static void progress(void *ud, int32_t step, int32_t steps, double loss) {
    const struct night *x = ud;
    char line[96];
    if (step % 20 || !x->params->say) return;
    snprintf(line, sizeof line, "lora: step %d of at most %d, loss %.4f", step, steps, loss);
    x->params->say(x->params->ud, line);
}

/* Every other held-out sample decides when to stop; the rest measure the gain. */
static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct fzoo_sample *train = NULL, *held = NULL;
    size_t n_train = 0, n_held = 0;
    int rc = night_samples(x, false, &train, &n_train, e);
    if (!rc) rc = night_samples(x, true, &held, &n_held, e);
    if (!rc && (n_train < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256,
                 "%zu answers to train on and %zu held out; at least %d and %d are needed", n_train,
                 n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    struct lora *adapter = NULL;
    const struct windows_turn turn = night_turn(x);
    size_t n_stop = n_held / 2, n_gate = n_held - n_stop;
    const struct fzoo_params p = {.steps = STEPS,
                                  .seed = x->params->seed,
                                  .goes_on = goes_on,
                                  .progress = progress,
                                  .ud = x,
                                  .turn = turn};
    if (!rc)
        rc = fzoo_train(&adapter, x->host->model, (struct fzoo_samples){train, n_train},
                        (struct fzoo_samples){held, n_stop}, &p, e);
    double *losses = rc ? NULL : mem_alloc_array(2 * n_gate, sizeof *losses);
    if (!rc && !losses) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    const struct fzoo_samples gate = {held + n_stop, n_gate};
    const struct lora_use use = {.lora = adapter, .scale = 1};
    if (!rc) rc = fzoo_losses(losses, x->host->model, NULL, gate, &turn, e);
    if (!rc) rc = fzoo_losses(losses + n_gate, x->host->model, &use, gate, &turn, e);
    if (!rc) night_gain_of(gain, losses, losses + n_gate, n_gate);
    if (!rc) rc = lora_save(adapter, path, e);
    lora_close(adapter);
    mem_free(losses);
    mem_free(train);
    mem_free(held);
    return rc;
}

const struct night_step night_step_lora = {
    .name = "lora",
    .artefact = "adapter.gguf",
    .about = "style and format of accepted answers, as an adapter",
    .time = "03:00",
    .propose = propose};
