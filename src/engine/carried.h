/* carried.h: what a job takes from a card that failed to another one: its text, which is evaluated again, and its sampler,
 * which continues with the next random number. The job owns it (engine_job.carried); used by the thread of the engine
 * that has the job. */
#ifndef CHIMERE_ENGINE_CARRIED_H
#define CHIMERE_ENGINE_CARRIED_H

#include <stdint.h>

struct engine_job;
struct engram_mixer;
struct sampler;

struct carried {
    int32_t *tokens; /* owned [n]: the prompt and the answer so far */
    int32_t n;
    struct sampler *sampler;     /* owned until a slot takes it, like engram */
    struct engram_mixer *engram; /* NULL: none */
    int64_t start_ns, decode_ns; /* as in struct active (sched.h) */
};

/* Copies tokens [n]; the rest is zero. NULL: out of memory. */
struct carried *carried_new(const int32_t *tokens, int32_t n);
/* Called when a job ends. Frees what the job carries, if anything. */
void carried_drop(struct engine_job *j);

#endif
