/* night_step.h: the table of what a night can improve. */
#ifndef CHIMERE_LEARN_STEP_NIGHT_STEP_H
#define CHIMERE_LEARN_STEP_NIGHT_STEP_H

#include "jobs/jobs.h"
#include "learn/data/collect.h"
#include "learn/night.h"
#include "learn/step/fzoo.h"

/* Measures the energy of a night against its budget. What other users need while the night waits does not count. */
struct night_meter {
    double from, used; /* joules: of the counters at the start; of the night so far */
    int64_t read_ns;   /* time of the last reading, 0: none */
    bool has_counter;
    bool is_spent; /* the budget is spent: the night stops, and keeps what it has */
};

/* State of a night that the steps share. */
struct night {
    const struct night_host *host;
    const struct night_params *params;
    struct nights *nights;
    struct learn_day day;
    json_t *items; /* owned: items of the general suites and of the owner (own.h) */
    /* owned [day.n]: prompt and answer as tokens; n_tok 0: not usable */
    struct fzoo_sample *samples;
    char scratch[NIGHTS_MAX_PATH]; /* folder for proposals, removed at the end */
    /* owned: the record that this night builds on, of the night on trial or else the current one; NULL: none */
    json_t *base;
    bool is_foreign; /* its artefacts belong to another model; the night ignores them */
    struct learn_span
        *hidden; /* owned [n_hidden]: times of hostile days, whose answers no step may read */
    size_t n_hidden;
    struct jobs *jobs;    /* owned: runs the steps, one at a time */
    struct jobs_run *job; /* view: the step that runs; NULL: none */
    double deadline;      /* in seconds of clock_ns(); waiting for the device does not count */
    bool has_device;      /* the night currently owns host->engine, which others use too */
    struct night_meter meter;
    int64_t led_ns;   /* when it was last seen that this process leads (store/server/lead.h) */
    bool is_replaced; /* another process leads now: the night ends and promotes nothing */
};

/* Paired measurement of a target on held-out questions, in the unit of the step (lower is better). */
struct night_gain {
    size_t n;
    double before, after;   /* means */
    double mean, low, high; /* of before - after, 95 % interval */
    double error;           /* standard error of mean */
    /* of the step prompts: whose rules were measured ("": of requests without a pipeline), their tokens, and how often
     * the search ran the model */
    char pipeline[LEARN_PIPELINE];
    size_t n_token, n_call;
};
void night_gain_of(struct night_gain *g, const double *before, const double *after, size_t n);

/* Whose part an artefact loses: the source of learn_source, with `below` also its users. */
struct night_person {
    const char *source;
    bool below;
};
bool night_is_theirs(const struct night_person *who, const char *source);

struct night_step {
    const char *name;
    const char *artefact; /* its file name; NULL: none */
    /* A second file, which propose writes into the scratch folder: what makes the artefact again. It is kept with the
     * artefact, and deleted with it. NULL: none */
    const char *log;
    /* The step works in place, without a device, an artefact or a measurement; propose writes what it did to `why`. It
     * polls the flag of its job alone. A night of such steps alone reads no answers and leaves no record. */
    bool is_upkeep;
    /* What it proposes cannot change what the model alone answers: the general suites are not answered for it. */
    bool is_beside;
    bool reads_all;    /* learns from every scored answer, also from rejected ones */
    const char *unit;  /* of its measurement; NULL: nats per token */
    const char *about; /* one sentence, for reports */
    const char *time;  /* default time of the step (schedule.h) */
    /* Writes the proposal to path and measures it. If there is none (CHIMERE_ENOENT), *why is the reason. */
    int (*propose)(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e);
    /* Copies an artefact without what it learned from one person. *n_gone: what was left out; an empty copy is not
     * written, and *is_empty is set. NULL: an artefact cannot lose a part, and is removed. */
    int (*forget)(const char *from, const char *to, const struct night_person *who, size_t *n_gone,
                  bool *is_empty, struct err *e);
};
extern const struct night_step *const night_steps[]; /* NULL-terminated */

enum { NIGHT_MAX_NAMES = 160 };
/* Writes the names of all steps. */
void night_step_names(char out[NIGHT_MAX_NAMES], const char *separator);

extern const struct night_step night_step_engram, night_step_lora, night_step_prompts,
    night_step_examples, night_step_thresholds, night_step_drafts, night_step_reindex;

/* Checks the name of a search for playbooks (night_prompts); CHIMERE_EINVAL: there is no such search. Else
 * returns its number. */
int night_prompts_search(const char *name, struct err *e);

/* Collects the usable samples of the day, for training or held out. The samples are views; free *v with mem_free. */
int night_samples(const struct night *x, bool held_out, struct fzoo_sample **v, size_t *n,
                  struct err *e);
/* Collects the indexes of these answers in an order that the seed chooses; free *v with mem_free. */
int night_indexes(const struct night *x, bool held_out, uint64_t seed, size_t **v, size_t *n,
                  struct err *e);
/* Tokenizes an answer to a question after rules and examples (backend/learned.h), which may be NULL. out->n_tok is 0 if it is
 * too long; free out->tokens with mem_free. */
int night_encode_text(struct night *x, const char *question, const char *answer, const char *rules,
                      const json_t *shots, struct fzoo_sample *out, struct err *e);
/* The same for answer i of the day. */
int night_encode_item(struct night *x, size_t i, const char *rules, const json_t *shots,
                      struct fzoo_sample *out, struct err *e);
/* Lets the model answer items, without learned files but with an adapter, a file (NULL: none); *run: a new
 * reference, as of eval_run. */
int night_answers(struct night *x, const json_t *items, const char *adapter, json_t **run,
                  struct err *e);
/* Returns how much of an accepted answer was said, 0..1: the harmonic mean of the shares of words that both have, in any
 * order and case. */
double night_lora_reward(const char *said, const char *accepted);
/* Returns false if the user stopped the night, or if its time or its energy is spent. */
bool night_goes_on(struct night *x);
/* Returns the callback for every forward pass of a step: it waits while a user's request needs the device. Its ud
 * is x. */
struct windows_turn night_turn(struct night *x);
/* Writes the path of an artefact that this night builds on; false: there is none, or it belongs to another model. */
bool night_live(const struct night *x, const char *name, char *out, size_t out_size);

#endif
