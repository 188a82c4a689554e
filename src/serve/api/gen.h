/* gen.h: one running generation for one request: reads the request, waits in the queue, turns events into frames or
 * into one body.
 *
 * An API reads its JSON into g->request and selects a form; from then on all APIs use the same code. Frames are written
 * on the engine's thread as events arrive. The collected output is stored per choice. */
#ifndef CHIMERE_SERVE_GEN_H
#define CHIMERE_SERVE_GEN_H

#include "backend/backend.h"
#include "serve/http/http.h"

enum { GEN_MAX_CALLS = 128, GEN_MAX_CHOICES = 256 };

struct gen_call {
    char id[64], name[128];
    struct buf args;
    int index;            /* in order of appearance, including failed calls */
    bool is_done, is_cut; /* neither: the call failed */
};

struct gen_choice {
    struct buf content, reasoning;
    struct gen_call *calls; /* owned [n_call] */
    int n_call;
    /* pending log-probabilities, comma-separated JSON, in the form's format */
    struct buf probs[4];
    size_t n_offset; /* bytes of text so far, for the field text_offset */
    bool ended, role_sent, old_calls;
    int64_t first_ns;          /* time of its first output */
    struct generation_end end; /* its pointers are not valid; stop and err are copies */
    char stop[ANSWER_MAX_STOP_BYTES + 1];
    struct err err;
    /* used by the form: kind and index of the open block, start of its text, its call */
    int block, n_block, call;
    size_t from;
    struct buf blocks; /* closed blocks, comma-separated JSON */
};

struct conversations_turn;
struct gen;
struct gen_form {
    const char *ping;
    const char *type; /* content type of a stream; NULL: text/event-stream */
    bool collects;    /* collect content, reasoning and calls also while streaming */
    bool always;      /* deliver events also without a stream; their frames are dropped */
    void (*begin)(struct gen *g);
    void (*event)(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
    /* after the last event; g->cut is set if the answer was cut */
    void (*end)(struct gen *g);
    void (*whole)(struct gen *g, struct buf *out); /* the response without a stream */
    void (*probs)(struct gen *g, struct gen_choice *c, const struct backend_event *ev);
};

struct gen {
    struct http_request *r;      /* view; outlives this */
    const struct gen_form *form; /* static */
    struct request request;
    json_t *prompts; /* owned: the prompts of a request with several; request.prompt is the first */
    struct backend *backend; /* borrowed */
    size_t entry;            /* index in the catalogue; selects the queue */
    bool old_calls;          /* use the chat API's form before tool_calls */
    bool stream, usage;      /* usage: stream_options.include_usage */
    bool progress;           /* return_progress */
    bool timings;            /* timings_per_token: timings in each chunk of a stream */
    bool verbose;            /* the answer has __verbose */
    int64_t created;         /* seconds since 1970 */
    char id[40];
    int64_t night; /* whose files the answer uses, valid from gen_go on; 0: none */
    char *model;   /* owned: the model's name in the request */
    json_t *echo;  /* owned: what an API repeats from its request, or NULL */
    char *items;   /* owned: JSON of all input items, if the response is stored; or NULL */
    struct conversations_turn *turn; /* owned: what the response is added to, or NULL */
    struct err cut;                  /* why the answer was cut; code 0: it was not cut */
    struct buf frame;                /* the form's work buffer */
    struct buf prefix;               /* the constant start of each frame */
    struct buf note;                 /* JSON of the orchestrator's last note */
    int64_t sequence;
    bool begun_text;
    /* n_top: number of log-probabilities besides that of the chosen token */
    int32_t n_prompt, n_top;
    /* owned [n_choice], valid from gen_go on; request.n choices per prompt, in order */
    struct gen_choice *choices;
    int32_t n_choice;
};

/* Returns NULL if an error was sent. */
struct gen *gen_new(struct http_request *r, const struct gen_form *form, const char *id_prefix);
/* Finds the model; if it fails, the error was sent. */
int gen_model(struct gen *g, const json_t *name);
/* Sets request.scope; call it once owner and user are known. */
void gen_scope(struct gen *g);
void gen_fail(struct gen *g, const struct err *e);
/* Prepares the request, waits in the queue and runs it. Always sends a response. */
void gen_go(struct gen *g);

/* the call with this index, or NULL */
struct gen_call *gen_call(struct gen_choice *c, int index);
void gen_put(struct gen *g, struct buf *frame);          /* sends the frame and clears it */
struct generation_end gen_sum(const struct gen *g);      /* stats of all choices */
json_t *gen_prompt(const struct gen *g, int32_t choice); /* view: the prompt of that choice */

/* Number of concurrent generations; 16 for a remote model. */
int32_t gen_n_seq(const struct backend *b);
struct backend *gen_backend(struct http_request *r, const json_t *name, struct err *e);

#endif
