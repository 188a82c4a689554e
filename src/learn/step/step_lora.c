/* step_lora.c: trains an adapter on the style and format of accepted answers, by forward passes only. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "learn/step/night_step.h"

/* a step that rewards whole answers generates them, and takes about ten times as long */
enum { LEAST_TRAIN = 16, LEAST_HELD = 6, STEPS = 300, REWARD_STEPS = 60, REWARD_TOKENS = 48 };

struct lora_step {
    struct night *x; /* view */
    const struct zo_rule *rule;
    size_t *train, n_train; /* owned [n_train]: indexes of the day's answers to train on */
};

static bool goes_on(void *ud) { return night_goes_on(((struct lora_step *)ud)->x); }

static void progress(void *ud, int32_t step, int32_t steps, double loss) {
    const struct night *x = ((struct lora_step *)ud)->x;
    char line[96];
    if (step % 20 || !x->params->say) return;
    snprintf(line, sizeof line, "lora: step %d of at most %d, loss %.4f", step, steps, loss);
    x->params->say(x->params->ud, line);
}

/* ---- the reward of whole answers ---- */

static bool is_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

/* Returns the next word in lower case, and moves *at after it; false: there is none. */
static bool next_word(const char **at, char out[32]) {
    size_t n = 0;
    while (**at && !is_word(**at)) ++*at;
    for (; is_word(**at); ++*at)
        if (n < 31) out[n++] = (char)tolower((unsigned char)**at);
    out[n] = 0;
    return n > 0;
}

static size_t count_words(const char *text) {
    char word[32];
    size_t n = 0;
    while (next_word(&text, word)) n++;
    return n;
}

double night_lora_reward(const char *said, const char *accepted) {
    bool used[256] = {false};
    char word[32], other[32];
    size_t n_said = 0, n_accepted = count_words(accepted), n_same = 0;
    for (const char *at = said; next_word(&at, word); n_said++) {
        size_t k = 0;
        bool is_found = false;
        for (const char *to = accepted; !is_found && k < 256 && next_word(&to, other); k++) {
            is_found = !used[k] && !strcmp(word, other);
            used[k] |= is_found;
        }
        n_same += is_found;
    }
    return n_same ? 2.0 * (double)n_same / (double)(n_said + n_accepted) : 0;
}

static json_t *item_of(const struct learn_item *a, int32_t k) {
    char id[24];
    snprintf(id, sizeof id, "answer-%d", k);
    return json_pack("{s:s,s:s,s:[{s:s,s:s}],s:b,s:i,s:{s:s,s:[s]}}", "id", id, "skill", "reward",
                     "messages", "role", "user", "content", a->question, "think", 0, "max_tokens",
                     REWARD_TOKENS, "check", "kind", "contains", "answer", "");
}

/* Lets the model answer a few of the day's questions with an adapter. All members of a step get the same questions. */
static int reward(void *ud, const struct lora_use *use, int32_t step, double *out, struct err *e) {
    const struct lora_step *s = ud;
    int32_t n = s->rule->batch;
    uint64_t stream = s->x->params->seed ^ 0x5eed;
    char path[NIGHTS_MAX_PATH + 16];
    const struct learn_item *asked[ZO_MAX_MEMBERS];
    json_t *items = json_array(), *run = NULL, *row;
    size_t i;
    *out = 0;
    snprintf(path, sizeof path, "%s/member.gguf", s->x->scratch);
    for (int32_t k = 0; k < n; k++) {
        uint64_t at = rng_at(stream, (uint64_t)step * (uint64_t)n + (uint64_t)k) % s->n_train;
        asked[k] = &s->x->day.v[s->train[at]];
        json_array_append_new(items, item_of(asked[k], k));
    }
    int rc = json_array_size(items) == (size_t)n ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = lora_save(use->lora, path, e);
    if (!rc) rc = night_answers(s->x, items, path, &run, e);
    json_array_foreach(json_object_get(run, "items"), i, row) {
        const char *said = json_string_value(json_object_get(row, "text"));
        if (said && i < (size_t)n) *out += night_lora_reward(said, asked[i]->answer) / n;
    }
    json_decref(run);
    json_decref(items);
    return rc;
}

/* ---- the step ---- */

/* Every other held-out sample decides when to stop; the rest measure the gain. */
static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct fzoo_sample *train = NULL, *held = NULL;
    struct lora_step step = {.x = x};
    size_t n_train = 0, n_held = 0;
    int rc = zo_rule_of(&step.rule, x->params->lora_rule, e);
    if (!rc) rc = night_indexes(x, false, x->params->seed, &step.train, &step.n_train, e);
    if (!rc) rc = night_samples(x, false, &train, &n_train, e);
    if (!rc) rc = night_samples(x, true, &held, &n_held, e);
    if (!rc && (n_train < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256,
                 "%zu answers to train on and %zu held out; at least %d and %d are needed", n_train,
                 n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    struct lora *adapter = NULL;
    struct replay log = {.n = 0};
    char log_path[NIGHTS_MAX_PATH + 32];
    const struct windows_turn turn = night_turn(x);
    size_t n_stop = n_held / 2, n_gate = n_held - n_stop;
    const struct fzoo_params p = {.rule = step.rule,
                                  .steps = rc || !step.rule->rewards ? STEPS : REWARD_STEPS,
                                  .seed = x->params->seed,
                                  .goes_on = goes_on,
                                  .reward = reward,
                                  .progress = progress,
                                  .ud = &step,
                                  .turn = turn,
                                  .log = &log};
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
    snprintf(log_path, sizeof log_path, "%s/%s", x->scratch, night_step_lora.log);
    if (!rc) rc = replay_save(&log, log_path, e);
    replay_fini(&log);
    lora_close(adapter);
    mem_free(losses);
    mem_free(train);
    mem_free(held);
    mem_free(step.train);
    return rc;
}

const struct night_step night_step_lora = {
    .name = "lora",
    .artefact = "adapter.gguf",
    .log = "adapter.replay.json",
    .about = "style and format of accepted answers, as an adapter",
    .time = "03:00",
    .propose = propose};
