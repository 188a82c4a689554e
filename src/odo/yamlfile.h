/* yamlfile.h: a YAML file that people edit -> the fields of a struct, each checked, with line numbers.
 *
 * A table says which keys a mapping may have and where their values go; what the table does not name is
 * refused with its line, and so are duplicates, wrong types and values out of range. Strings and lists are
 * copied into the caller's arena. Files have at most YAMLFILE_MAX_BYTES. Any thread, one file each. */
#ifndef CHIMERE_ODO_YAMLFILE_H
#define CHIMERE_ODO_YAMLFILE_H

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
    YF_NODE, /* int32_t: the node, for the caller to read on; 0: absent */
};

struct yamlfile_field {
    const char *name; /* NULL ends the table */
    enum yamlfile_type type;
    size_t offset;
    double min, max;
    const char *choices;
};

/* text: NULL reads the file at path; otherwise the text [n] that path names in messages. */
int yamlfile_open(struct yamlfile **out, const char *path, const char *text, size_t n,
                  struct err *e);
void yamlfile_close(struct yamlfile *f);
int32_t yamlfile_root(const struct yamlfile *f); /* 0 where the file is empty */
/* Fills the fields of `base` that are present in mapping `node`; the others stay as they are. Bits of
 * *seen (may be NULL) are the rows that were present. */
int yamlfile_bind(struct yamlfile *f, int32_t node, const struct yamlfile_field *fields, void *base,
                  uint64_t *seen, struct arena *arena, struct err *e);
/* Elements of a sequence; CHIMERE_EFORMAT with the line where the node is none. */
int yamlfile_items(struct yamlfile *f, int32_t node, const char *what, int32_t *n, struct err *e);
int32_t yamlfile_item(const struct yamlfile *f, int32_t node, int32_t i);
/* Key and value of the i-th pair of a mapping; false beyond the end or where a key is no string. */
bool yamlfile_pair(const struct yamlfile *f, int32_t node, int32_t i, const char **key,
                   int32_t *value);
bool yamlfile_is_mapping(const struct yamlfile *f, int32_t node);
const char *yamlfile_text(const struct yamlfile *f, int32_t node); /* NULL: no scalar */
/* "PATH:LINE: " and the sentence. */
int yamlfile_fail(const struct yamlfile *f, int32_t node, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
