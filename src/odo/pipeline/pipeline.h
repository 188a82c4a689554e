/* pipeline.h: how each route answers. A folder of YAML files, reloaded when one changes.
 *
 * A set is an immutable snapshot of the folder; hold it for the duration of one request. A watcher thread
 * (inotify) makes a new set when a file changes. If a file does not parse, the new set keeps the old version of
 * that file and has the error message. Sets are never modified, so a request cannot change the settings of
 * another. docs/odo.md documents the keys of the files. Any thread. */
#ifndef CHIMERE_ODO_PIPELINE_H
#define CHIMERE_ODO_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "odo/decide/intent.h"
#include "odo/pipeline/skill.h"
#include "odo/pipeline/yamlfile.h"

enum {
    PIPELINE_MAX_STEPS = 32,
    PIPELINE_MAX_LOOPS = 8,
    PIPELINE_MAX_REPEAT = 16, /* runs of a loop, and attempts at a step */
    PIPELINE_MAX = 64,
    PIPELINE_MAX_SKILLS = 128,
    PIPELINE_MAX_PERSONAS = 64
};

/* values that are set replace the caller's; NaN and INT32_MIN: not set */
struct pipeline_sampling {
    double temperature, top_p, min_p, presence_penalty;
    int32_t top_k, max_tokens;
};

enum pipeline_when { PIPELINE_NEVER, PIPELINE_ULTRA, PIPELINE_ALWAYS };
/* never; facts: stored facts are read, "Remember that ..." is stored; all: also talks */
enum pipeline_memory { PIPELINE_MEMORY_NEVER, PIPELINE_MEMORY_FACTS, PIPELINE_MEMORY_ALL };
enum pipeline_web { PIPELINE_WEB_NEVER, PIPELINE_WEB_PROBE, PIPELINE_WEB_ALWAYS };

/* A property of the question or of the output of an earlier step. All strings are compared ignoring case. */
struct pipeline_cond {
    const char *step;              /* its agent; NULL: the question */
    const char *field;             /* member of its output, a JSON object; NULL: the whole text */
    const char *contains, *equals; /* one of them is set; both NULL: no condition */
    bool negated;
};

struct
    pipeline_loop { /* steps first..last run again until the condition holds, at most `most` times in all */
    int32_t first, last, most;
    struct pipeline_cond until;
};

struct pipeline_step {
    const char *agent;  /* name of the step in notes */
    const char *prompt; /* added to the pipeline's prompt; may be NULL */
    struct pipeline_sampling sampling;
    struct yamlfile_list tools; /* subset of the pipeline's tools; n == 0: none */
    int32_t rounds;             /* limit of tool rounds; 0: the pipeline's */
    int32_t group;              /* steps with the same group run concurrently */
    struct pipeline_cond when;  /* the step is skipped if it does not hold */
    int32_t retries;    /* further attempts if the step fails or its output has the wrong form */
    bool approve;       /* the user must allow the step */
    const char *output; /* JSON Schema of its output, as JSON; NULL: any text */
};

struct pipeline { /* strings are in its arena */
    const char *name, *about, *prompt;
    const char *persona; /* text of its SOUL.md, or NULL */
    struct pipeline_sampling sampling;
    int32_t think;        /* -1: the caller's; 0, 1 */
    int32_t think_budget; /* INT32_MIN: the caller's */
    const char *engram;   /* table, or NULL */
    double engram_alpha;
    bool documents;         /* search the index of documents */
    const char *collection; /* NULL: all */
    int32_t web;            /* enum pipeline_web */
    bool few_shot, dynamic_engram;
    int32_t enrich_tokens; /* token budget of the added text, 1200 */
    int32_t enrich_ms;     /* deadline of each part, 8000 */
    struct yamlfile_list tools, skills;
    struct yamlfile_list mcp; /* MCP servers, or single tools as SERVER_TOOL, that may be offered */
    bool any_mcp;             /* no such list: all are allowed */
    int32_t rounds;           /* limit of tool rounds, 6 */
    bool plan;
    int32_t plan_tokens, plan_ms;
    bool any_skill;        /* no list of skills: every skill may be chosen */
    int32_t memory;        /* enum pipeline_memory */
    int32_t memory_tokens; /* token budget in the prompt, 300 */
    const char *strategy;  /* a name of strategy.h, validated; or NULL */
    int32_t strategy_when; /* enum pipeline_when */
    int32_t strategy_ms;   /* deadline, 60000 */
    /* judge answers; store texts for learning; hold an answer back until judged and retry a bad one */
    bool quality_score, quality_keep, quality_reflect;
    int32_t run_steps; /* enum pipeline_when */
    struct pipeline_step steps[PIPELINE_MAX_STEPS];
    int32_t n_step;
    struct pipeline_loop
        loops[PIPELINE_MAX_LOOPS]; /* in the order of their last steps; not nested */
    int32_t n_loop;
};

/* The tools that pipelines may name besides the built-in ones; NULL: none. */
struct pipeline_names {
    bool (*has_tool)(void *ud, const char *name);
    void *ud;
};

struct pipeline_set;
struct pipeline_dir;

/* Reads every NAME.yaml of the folder, including intent.yaml. Any invalid file is an error here, also one that names
 * an unknown tool, skill or step. names: copied; its ud is borrowed until pipeline_dir_close; may be NULL. */
int pipeline_dir_open(struct pipeline_dir **out, const char *path, bool watch,
                      const struct pipeline_names *names, struct err *e);
void pipeline_dir_close(struct pipeline_dir *d); /* sets that are still held stay valid */
/* Reloads the folder now. Returns 0 or the first error; files with errors keep their old version. The watcher
 * calls it. */
int pipeline_dir_reload(struct pipeline_dir *d, struct err *e);

/* Checks a text as if it were the file NAME.yaml, without a folder. Its persona, skills and tools are not looked
 * up. */
int pipeline_check(const char *name, const char *text, size_t n, struct err *e);

const char *pipeline_dir_path(const struct pipeline_dir *d);
struct pipeline_set *pipeline_hold(struct pipeline_dir *d);
void pipeline_release(struct pipeline_set *s);
const struct intent_rules *pipeline_rules(const struct pipeline_set *s);
/* Returns the pipeline of that name; NULL: not found. */
const struct pipeline *pipeline_find(const struct pipeline_set *s, const char *name);
const struct pipeline *pipeline_at(const struct pipeline_set *s, int i); /* NULL beyond the end */
/* Skills (skills/NAME/SKILL.md) and personas (personas/NAME/SOUL.md) of the folder. A broken one only sets
 * pipeline_problem. */
const struct skill *const *pipeline_skills(const struct pipeline_set *s, int *n);
/* the text; NULL: not found */
const char *pipeline_persona(const struct pipeline_set *s, const char *name);
/* problem of the last reload; "": none */
const char *pipeline_problem(const struct pipeline_set *s);
uint64_t pipeline_version(const struct pipeline_set *s); /* incremented by each change */

#endif
