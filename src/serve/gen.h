/* gen.h: one answer under way for one request: ask -> queue -> events -> frames or one body.
 *
 * An API reads its JSON into g->ask and names a form; from there all APIs are alike. Frames are written
 * on the engine's thread as events arrive; what is collected of an answer is kept per choice. */
#ifndef CHIMERE_SERVE_GEN_H
#define CHIMERE_SERVE_GEN_H

#include "backend/backend.h"
#include "serve/http.h"

enum { GEN_MAX_CALLS = 128, GEN_MAX_CHOICES = 256 };

struct gen_call {
    char id[64], name[128];
    struct buf args;
    int index;            /* in order of appearance, void ones too */
    bool is_done, is_cut; /* neither: it went wrong */
};

struct gen_choice {
    struct buf content, reasoning;
    struct gen_call *calls; /* owned [n_call] */
    int n_call;
    struct buf
        probs[4];    /* pending log-probabilities, comma-separated JSON, as the form wants them */
    size_t n_offset; /* bytes of text so far, for text_offset */
    bool ended, role_sent, old_calls;
    int64_t first_ns;          /* of its first output */
    struct generation_end end; /* its pointers are not kept: */
    char stop[ANSWER_MAX_STOP_BYTES + 1];
    struct err err;
    /* a form's own place: kind and number of the open block, where its text begins, its call */
    int block, n_block, call;
    size_t from;
    struct buf blocks; /* closed blocks, comma-separated JSON */
};

struct gen;
struct gen_form {
    const char *ping;
    const char *type; /* of a stream; NULL: text/event-stream */
    bool collects;    /* wants content, reasoning and calls kept while it streams, too */
    bool always;      /* wants events without a stream, too: frames are dropped then */
    void (*begin)(struct gen *g);
    void (*event)(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
    void (*end)(struct gen *g);                    /* after the last event; e set: it was cut */
    void (*whole)(struct gen *g, struct buf *out); /* without stream */
    void (*probs)(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
};

struct gen {
    struct http_request *r;      /* view; lives longer */
    const struct gen_form *form; /* static */
    struct request request;
    json_t *prompts; /* owned: of completions that have several; request.prompt is the first */
    struct backend *backend; /* borrowed */
    size_t entry;            /* of the catalogue: whose queue it waits in */
    bool old_calls;          /* the chat API's form before tool_calls */
    bool stream, usage;      /* stream_options.include_usage */
    bool progress;           /* return_progress */
    bool timings;            /* timings_per_token: with each chunk of a stream */
    bool verbose;            /* the answer has __verbose */
    int64_t created;         /* seconds since 1970 */
    char id[40];
    char *model;       /* owned: the name as asked */
    json_t *echo;      /* owned: what an API repeats of its request, or NULL */
    char *items;       /* owned: JSON of all items asked with, of an answer to be kept, or NULL */
    struct err cut;    /* why the answer was cut; code 0: it was not */
    struct buf frame;  /* scratch of the form */
    struct buf prefix; /* a form's constant beginning of frames */
    struct buf note;   /* what an orchestrator did: its last note's JSON */
    int64_t sequence;
    bool begun_text;
    int32_t n_prompt, n_top; /* n_top: log-probabilities beside the chosen one's */
    struct gen_choice
        *choices; /* owned [n_choice], from gen_go on: request.n of each prompt in turn */
    int32_t n_choice;
};

/* NULL: it was answered with an error already. */
struct gen *gen_new(struct http_request *r, const struct gen_form *form, const char *id_prefix);
/* Finds the model; on error the request was answered. */
int gen_model(struct gen *g, const json_t *name);
/* Sets request.scope once owner and user are known. */
void gen_scope(struct gen *g);
void gen_fail(struct gen *g, const struct err *e);
/* Prepares, waits for a turn, runs. Replies whatever happens. */
void gen_go(struct gen *g);

struct gen_call *gen_call(struct gen_choice *c,
                          int index);                    /* by its number of appearance, or NULL */
void gen_put(struct gen *g, struct buf *frame);          /* sends and clears */
struct generation_end gen_sum(const struct gen *g);      /* stats of all choices */
json_t *gen_prompt(const struct gen *g, int32_t choice); /* view: of that choice */

/* Answers at once; of a model that lives elsewhere: 16. */
int32_t gen_n_seq(const struct backend *b);
struct backend *gen_backend(struct http_request *r, const json_t *name, struct err *e);

#endif
