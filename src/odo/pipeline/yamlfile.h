/* yamlfile.h: reads a YAML file that users edit into the fields of a struct; each field is checked, errors have
 * line numbers.
 *
 * A table lists the keys that a mapping may have and where their values are stored. Unknown keys, duplicates,
 * wrong types and values out of range are refused with their line. Strings and lists are copied into the caller's
 * arena. A file has at most YAMLFILE_MAX_BYTES. Any thread; one thread per file. */
#ifndef CHIMERE_ODO_YAMLFILE_H
#define CHIMERE_ODO_YAMLFILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

enum { YAMLFILE_MAX_BYTES = 1 << 20, YAMLFILE_MAX_LIST = 4096 };

struct yamlfile;

struct yamlfile_list { /* of strings; in the arena */
    const char **v;
    size_t n;
};

enum yamlfile_type {
    YF_STR,  /* const char * */
    YF_BOOL, /* bool */
    YF_INT,  /* int32_t, min..max */
    YF_NUM,  /* double, min..max */
    YF_ENUM, /* int32_t: index into choices, separated by '|' */
    YF_LIST, /* struct yamlfile_list; a single string is a list of one */
    YF_NODE, /* int32_t: the node, which the caller reads itself; 0: absent */
};

struct yamlfile_field {
    const char *name; /* NULL: end of the table */
    enum yamlfile_type type;
    size_t offset;
    double min, max;
    const char *choices;
};

/* text NULL: reads the file at path. Otherwise text [n] is parsed and path is used only in messages. */
int yamlfile_open(struct yamlfile **out, const char *path, const char *text, size_t n,
                  struct err *e);
void yamlfile_close(struct yamlfile *f);
int32_t yamlfile_root(const struct yamlfile *f); /* 0: the file is empty */
/* Sets the fields of `base` that the mapping `node` contains; the others keep their values. Bit i of *seen (may be
 * NULL) is set if row i was present. */
int yamlfile_bind(struct yamlfile *f, int32_t node, const struct yamlfile_field *fields, void *base,
                  uint64_t *seen, struct arena *arena, struct err *e);
/* Returns the number of elements of a sequence; CHIMERE_EFORMAT with the line if the node is not a sequence. */
int yamlfile_items(struct yamlfile *f, int32_t node, const char *what, int32_t *n, struct err *e);
int32_t yamlfile_item(const struct yamlfile *f, int32_t node, int32_t i);
/* Returns key and value of the i-th pair of a mapping; false past the end or if the key is not a string. */
bool yamlfile_pair(const struct yamlfile *f, int32_t node, int32_t i, const char **key,
                   int32_t *value);
bool yamlfile_is_mapping(const struct yamlfile *f, int32_t node);
const char *yamlfile_text(const struct yamlfile *f, int32_t node); /* NULL: not a scalar */
/* Converts a node to JSON; *out is a new reference. Scalars without quotes become numbers, true, false or null if they
 * look like one. */
int yamlfile_json(const struct yamlfile *f, int32_t node, json_t **out, struct err *e);
/* Writes "PATH:LINE: " and the message. */
int yamlfile_fail(const struct yamlfile *f, int32_t node, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
