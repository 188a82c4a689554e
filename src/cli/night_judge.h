/* night_judge.h: opens the models that score the answers of the day (learn/data/judge.h), on the processor.
 *
 * A process reward model whose file names its marks scores steps without words. Any other model of --prm judges them in
 * words, as ThinkPRM does. Models that write are opened by the memory plan, which refuses them if they do not fit
 * beside what is loaded already. A model that cannot be opened is left out: the night continues without it. */
#ifndef CHIMERE_CLI_NIGHT_JUDGE_H
#define CHIMERE_CLI_NIGHT_JUDGE_H

#include "cli/args/chat_args.h"
#include "cli/args/encoder_args.h"
#include "learn/data/judge.h"

struct night_judge {
    struct judge judge; /* views of the members below */
    char name[2 * 128 + 4];
    char why[512]; /* what was left out, and why; "": nothing */
    struct encoder_rig scorer;
    struct reward *reward;       /* owned; NULL: none */
    struct loaded loaded[2];     /* owned: the prover, the grader */
    struct backend *backends[2]; /* owned; NULL: none */
};

struct night_judge_files {
    const char *prm;       /* option with the file of a process reward model; NULL: none */
    const char *judge;     /* option with the file of a model that grades; NULL: none */
    struct reward *reward; /* borrowed: an open process reward model instead of prm; NULL: none */
    const char *reward_name;
};
/* Options that are not set are ignored. Call night_judge_close in any case. */
void night_judge_open(struct night_judge *j, const struct cfg *c,
                      const struct night_judge_files *f);
void night_judge_close(struct night_judge *j);
/* The members of night_params; NULL: none. */
const struct judge *night_judge_used(const struct night_judge *j);
const char *night_judge_why(const struct night_judge *j);

#endif
