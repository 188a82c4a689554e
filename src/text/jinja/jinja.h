/* jinja.h: the language of chat templates, compiled once and rendered under limits.
 *
 * Behaves like Jinja2 3.1 in the sandbox that the transformers library uses for chat templates: immutable values,
 * trim_blocks and lstrip_blocks on, one trailing newline dropped, autoescape off, loop controls, `generation`
 * blocks (rendered, not marked), tojson without HTML escapes, raise_exception, strftime_now. Values behave and
 * print as in Python. Integers are 64-bit and overflow is an error; text is indexed by code point. Refused by
 * name, because not supported: include, import, extends, block, autoescape, i18n, random, lipsum, urlize, pprint.
 *
 * A template is untrusted input, and so is the context: every render counts steps, depth, output and the memory of
 * all its values. Template errors give the line.
 *
 * Provenance: for each byte of output it is known whether it comes from the template (its data and literals, and
 * context strings that the caller declares as trusted) or from the context. Provenance survives every string
 * operation. A copied character keeps its origin. Text computed from values (tojson, numbers, printed lists)
 * counts as context, and so does text that replace() inserts into context text.
 *
 * A compiled template is immutable: any number of threads may render it at once. */
#ifndef CHIMERE_TEXT_JINJA_JINJA_H
#define CHIMERE_TEXT_JINJA_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

#define JINJA_MAX_TEMPLATE_BYTES (1u << 20)

struct jinja;

/* CHIMERE_EFORMAT: syntax error ("line 12: ..."), EUNSUPPORTED: a construct that is not supported, ELIMIT, ENOMEM. */
int jinja_compile(struct jinja **out, const char *text, size_t n, struct err *e);
void jinja_free(struct jinja *j);

/* Calls fn for each literal text of the template (data and string constants), in undefined order. */
void jinja_literals(const struct jinja *j, void (*fn)(void *arg, const char *s, size_t n),
                    void *arg);
/* Returns true if the template reads a variable, attribute or key of this name somewhere. */
bool jinja_mentions(const struct jinja *j, const char *name);

struct jinja_limits {
    /* evaluated nodes, plus one per 16 bytes or per item of bulk operations */
    uint64_t max_steps;
    uint32_t max_depth;      /* nested macro calls, recursive loops, and values inside values */
    size_t max_output_bytes; /* of the result, and of any intermediate string */
    size_t max_memory_bytes; /* of all values made during one render */
};
extern const struct jinja_limits jinja_default_limits; /* 20 M steps, 200, 64 MiB, 512 MiB */

struct jinja_env {
    const struct jinja_limits *limits; /* NULL: jinja_default_limits */
    const struct tm *now;              /* local time for strftime_now; NULL: the system clock */
    /* Returns true if a context string counts as template text. `top` is the context's key. `key` is the innermost
     * object key above the string, or top if there is none. NULL: no string does. */
    bool (*is_trusted)(const char *top, const char *key, const char *s, size_t n);
};

struct jinja_run { /* a range of output with one origin; runs alternate and cover all of it */
    size_t n;
    bool is_template;
};

struct jinja_output {
    struct buf text;        /* UTF-8 */
    struct jinja_run *runs; /* owned [n_run] */
    size_t n_run;
};

/* Renders with the members of the JSON object `context` as variables. context is only read, without changing
 * jansson's reference counts, so threads may share it. out is initialised here; call jinja_output_fini also after
 * an error. CHIMERE_EREFUSED: the template called raise_exception, whose message is in e; EFORMAT: a runtime error
 * ("line 12: ..."); ELIMIT; ENOMEM. env may be NULL. */
int jinja_render(const struct jinja *j, json_t *context, const struct jinja_env *env,
                 struct jinja_output *out, struct err *e);
void jinja_output_fini(struct jinja_output *out);

#endif
