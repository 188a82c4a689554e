/* tool.h: what a model may do besides answering: a table of tools, each with its limits.
 *
 * A tool takes JSON arguments, checked against its schema's names and types, and gives text. Its flags say
 * what it can cause; once text from pages or documents stands in a conversation, only tools that cause
 * nothing outside may run (tool_allowed), so that nothing written there can act. Tools run on the thread
 * of their request; several requests run the same tool at once. */
#ifndef CHIMERE_TOOLS_TOOL_H
#define CHIMERE_TOOLS_TOOL_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    TOOL_EFFECT = 1,        /* changes something, or runs what the model wrote */
    TOOL_SENDS = 2,         /* arguments leave the machine */
    TOOL_TAINTS = 4,        /* its result was written by strangers */
    TOOL_CONFINED = 8,      /* its effect stays in a sandbox or under a root of the user's choice */
    TOOL_TAINTS_LOCAL = 16, /* its result is a file of that root: confined tools may go on */
    TOOL_PERSISTS = 64, /* its effect outlives the request: after any taint it needs confirmation */
    TOOL_ANYWHERE = 32, /* offered by every pipeline, not only by those that name it */
};
enum { TOOL_MAX_NAME = 64, TOOL_MAX_OUTPUT = 64 << 10, TOOL_MAX = 256 };

struct tool_env {            /* of one request */
    _Atomic bool *cancelled; /* borrowed */
    int64_t deadline_ns;     /* of this call */
    bool tainted;            /* strangers' text is in the conversation */
    bool tainted_local;      /* text of files under the root is */
    const char *const
        *confirmed; /* names of tools that the user allows all the same [n_confirmed] */
    size_t n_confirmed;
    const char *collection; /* of documents; NULL: all */
    const char *owner;      /* whose memory; NULL: MEMORY_LOCAL */
    json_t *found;          /* of a search, for the client: [{"url", "title"}]; NULL: not wanted */
    /* Text that a tool has for people while it runs, on its own thread; NULL: not wanted. */
    void (*progress)(void *ud, const char *text, size_t n);
    void *ud;
    bool failed;    /* out: a program was run and did not succeed; its output is the result */
    int32_t status; /* out: its exit status; below 0: the signal that ended it */
};

struct tool {
    char name[TOOL_MAX_NAME + 1];
    unsigned flags;
    int32_t deadline_ms;
    const char *server; /* view: name of the MCP server that has it; NULL: it is ours */
    json_t *spec; /* owned; {"type": "function", "function": {name, description, parameters}} */
    /* Appends at most TOOL_MAX_OUTPUT bytes to out. */
    int (*run)(void *ud, const json_t *args, struct tool_env *env, struct buf *out, struct err *e);
    void (*free)(void *ud); /* may be NULL */
    void *ud;
};

struct tool_set;

int tool_set_new(struct tool_set **out, struct err *e); /* with the calculator */
void tool_set_free(struct tool_set *s);
/* Copies *t; takes spec and ud, also on failure. A taken name is CHIMERE_EINVAL. */
int tool_add(struct tool_set *s, const struct tool *t, struct err *e);
const struct tool *tool_find(const struct tool_set *s, const char *name);
const struct tool *tool_at(const struct tool_set *s, size_t i); /* NULL beyond the end */
/* {"type": "function", ...} from a name, a sentence and the parameters as JSON text; NULL: out of memory. */
json_t *tool_spec(const char *name, const char *about, const char *parameters);
/* It would be allowed if the user confirmed it (odo.confirm). */
bool tool_needs_confirmation(const struct tool *t, const struct tool_env *env);
/* False: why not, in e. */
bool tool_allowed(const struct tool *t, const struct tool_env *env, struct err *e);
/* A program's output as progress (env: its struct tool_env); bytes that are no text become '?'. */
void tool_progress(void *env, const char *bytes, size_t n);
/* Checks and runs. Failures become one line of text for the model, "error: ..."; the code is returned. */
int tool_run(const struct tool *t, const char *args, struct tool_env *env, struct buf *out);

#endif
