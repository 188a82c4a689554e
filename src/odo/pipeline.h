/* pipeline.h: how each route answers: a folder of YAML files, read again when one changes.
 *
 * A set is an immutable snapshot of the folder: hold it for as long as one request needs it. A watcher
 * thread (inotify) makes a new set when a file changes; a file that does not parse leaves the old version
 * of it in force and its message in the new set. Nothing of a set is ever written to, so no request can
 * change another's settings. The files' keys are documented in docs/odo.md. Any thread. */
#ifndef CHIMERE_ODO_PIPELINE_H
#define CHIMERE_ODO_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "odo/intent.h"
#include "odo/skill.h"
#include "odo/yamlfile.h"

enum {
    PIPELINE_MAX_STEPS = 32,
    PIPELINE_MAX = 64,
    PIPELINE_MAX_SKILLS = 128,
    PIPELINE_MAX_PERSONAS = 64
};

struct pipeline_sampling { /* what is set replaces the caller's; NaN and INT32_MIN: unset */
    double temperature, top_p, min_p, presence_penalty;
    int32_t top_k, max_tokens;
};

enum pipeline_when { PIPELINE_NEVER, PIPELINE_ULTRA, PIPELINE_ALWAYS };
/* never; facts: what the user told is read, "Remember that ..." is kept; all: talks too */
enum pipeline_memory { PIPELINE_MEMORY_NEVER, PIPELINE_MEMORY_FACTS, PIPELINE_MEMORY_ALL };
enum pipeline_web { PIPELINE_WEB_NEVER, PIPELINE_WEB_PROBE, PIPELINE_WEB_ALWAYS };

struct pipeline_step {
    const char *agent;  /* its name in notes */
    const char *prompt; /* added to the pipeline's; may be NULL */
    struct pipeline_sampling sampling;
    struct yamlfile_list tools; /* of the pipeline's; n == 0: none */
    int32_t rounds;             /* of tools; 0: the pipeline's */
    int32_t group;              /* steps of one group run side by side */
};

struct pipeline { /* strings in its own arena */
    const char *name, *about, *prompt;
    const char *persona; /* text of its SOUL.md, or NULL */
    struct pipeline_sampling sampling;
    int32_t think;        /* -1: the caller's; 0, 1 */
    int32_t think_budget; /* INT32_MIN: the caller's */
    const char *engram;   /* table, or NULL */
    double engram_alpha;
    bool documents;         /* look into the index of documents */
    const char *collection; /* NULL: all */
    int32_t web;            /* enum pipeline_web */
    bool few_shot, dynamic_engram;
    int32_t enrich_tokens; /* budget of what is added, 1200 */
    int32_t enrich_ms;     /* deadline of each part, 8000 */
    struct yamlfile_list tools, skills;
    struct yamlfile_list mcp; /* servers, or their tools as SERVER_TOOL, that may be offered */
    bool any_mcp;             /* no such list: all */
    int32_t rounds;           /* of tools at most, 6 */
    bool plan;
    int32_t plan_tokens, plan_ms;
    bool any_skill;        /* no list of skills: every one may be chosen */
    int32_t memory;        /* enum pipeline_memory */
    int32_t memory_tokens; /* budget in the prompt, 300 */
    const char *strategy;  /* strategy.h; checked; or NULL */
    int32_t strategy_when; /* enum pipeline_when */
    int32_t strategy_ms;   /* deadline, 60000 */
    /* judge answers; keep texts for learning; hold an answer back until judged, and retry a bad one */
    bool quality_score, quality_keep, quality_reflect;
    int32_t run_steps; /* enum pipeline_when */
    struct pipeline_step steps[PIPELINE_MAX_STEPS];
    int32_t n_step;
};

struct pipeline_set;
struct pipeline_dir;

/* Reads every NAME.yaml of the folder, intent.yaml too. A file that is wrong is an error here. */
int pipeline_dir_open(struct pipeline_dir **out, const char *path, bool watch, struct err *e);
void pipeline_dir_close(struct pipeline_dir *d); /* sets that are held stay valid */
/* Looks at the folder now; 0, or the first error (old versions stay). The watcher calls it. */
int pipeline_dir_reload(struct pipeline_dir *d, struct err *e);

/* A text as the file NAME.yaml, without a folder; its persona is not looked for. */
int pipeline_check(const char *name, const char *text, size_t n, struct err *e);

const char *pipeline_dir_path(const struct pipeline_dir *d);
struct pipeline_set *pipeline_hold(struct pipeline_dir *d);
void pipeline_release(struct pipeline_set *s);
const struct intent_rules *pipeline_rules(const struct pipeline_set *s);
/* The named one; NULL: there is none. */
const struct pipeline *pipeline_find(const struct pipeline_set *s, const char *name);
const struct pipeline *pipeline_at(const struct pipeline_set *s, int i); /* NULL beyond the end */
/* skills/NAME/SKILL.md and personas/NAME/SOUL.md of the folder; what is broken of those is a problem alone. */
const struct skill *const *pipeline_skills(const struct pipeline_set *s, int *n);
const char *pipeline_persona(const struct pipeline_set *s, const char *name); /* text; NULL */
const char *pipeline_problem(const struct pipeline_set *s); /* of the last reload; "" where none */
uint64_t pipeline_version(const struct pipeline_set *s);    /* counts changes */

#endif
