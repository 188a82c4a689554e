/* tool.h: what a model may do besides answering: a table of tools, each with its limits.
 *
 * A tool takes JSON arguments, checked against the names and types of its schema, and returns text. Flags state its
 * possible effects. Once a conversation contains text from pages or documents, tools that write, run or send something
 * are refused or need the user's confirmation (tool_allowed), so that instructions in that text cannot act. A tool runs
 * on the thread of its request; several requests may run the same tool at once. */
#ifndef CHIMERE_TOOLS_TOOL_H
#define CHIMERE_TOOLS_TOOL_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    TOOL_EFFECT = 1, /* changes something, or runs code that the model wrote */
    TOOL_SENDS = 2,  /* its arguments leave the machine */
    TOOL_TAINTS = 4, /* its result is untrusted text */
    /* its effect is limited to a sandbox or to a root folder that the user chose */
    TOOL_CONFINED = 8,
    TOOL_TAINTS_LOCAL = 16, /* its result is a file below that root; confined tools may still run */
    TOOL_PERSISTS = 64, /* its effect outlives the request: after any taint it needs confirmation */
    TOOL_ANYWHERE = 32, /* offered by every pipeline, not only by those that name it */
};
enum { TOOL_MAX_NAME = 64, TOOL_MAX_OUTPUT = 64 << 10, TOOL_MAX = 256 };

struct tool_env {            /* environment of one request */
    _Atomic bool *cancelled; /* borrowed */
    int64_t deadline_ns;     /* of this call */
    bool tainted;            /* the conversation contains untrusted text */
    bool tainted_local;      /* the conversation contains text of files under the root */
    const char *const
        *confirmed; /* names of tools that the user allows after untrusted text [n_confirmed] */
    size_t n_confirmed;
    const char *documents; /* scope of documents (store/doc_scope.h); NULL: the shared ones */
    const char *owner;     /* whose memory is used; NULL: MEMORY_LOCAL */
    /* results of a search, for the client: [{"url", "title"}]; NULL: not wanted */
    json_t *found;
    /* Shows text to the user while the tool runs. Called on the tool's thread; NULL: not wanted. */
    void (*progress)(void *ud, const char *text, size_t n);
    void *ud;
    bool failed;    /* out: a program ran and failed; its output is the result */
    int32_t status; /* out: exit status of the program; below 0: the signal that ended it */
};

struct tool {
    char name[TOOL_MAX_NAME + 1];
    unsigned flags;
    int32_t deadline_ms;
    const char *server; /* view: name of the MCP server that offers it; NULL: a local tool */
    json_t *spec; /* owned; {"type": "function", "function": {name, description, parameters}} */
    /* Appends at most TOOL_MAX_OUTPUT bytes to out. */
    int (*run)(void *ud, const json_t *args, struct tool_env *env, struct buf *out, struct err *e);
    void (*free)(void *ud); /* may be NULL */
    void *ud;
};

struct tool_set;

int tool_set_new(struct tool_set **out, struct err *e); /* contains the calculator */
void tool_set_free(struct tool_set *s);
/* Copies *t. Takes ownership of spec and ud, also on failure. CHIMERE_EINVAL: the name is in use. */
int tool_add(struct tool_set *s, const struct tool *t, struct err *e);
const struct tool *tool_find(const struct tool_set *s, const char *name);
const struct tool *tool_at(const struct tool_set *s, size_t i); /* NULL past the end */
/* {"type": "function", ...} from a name, a sentence and the parameters as JSON text; NULL: out of memory. */
json_t *tool_spec(const char *name, const char *about, const char *parameters);
/* Returns true if the tool would be allowed once the user confirms it (odo.confirm). */
bool tool_needs_confirmation(const struct tool *t, const struct tool_env *env);
/* If it returns false, e has the reason. */
bool tool_allowed(const struct tool *t, const struct tool_env *env, struct err *e);
/* Reports a program's output as progress (env: a struct tool_env). Bytes that are not UTF-8 become '?'. */
void tool_progress(void *env, const char *bytes, size_t n);
/* Checks the arguments and runs the tool. A failure becomes one line of text for the model, "error: ..."; its code
 * is returned. */
int tool_run(const struct tool *t, const char *args, struct tool_env *env, struct buf *out);

#endif
