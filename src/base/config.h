/* config.h: a table of options. Values come from the default, the file, the environment and the flag, in increasing
 * priority.
 *
 * An option `kv-type` is the flag --kv-type, the environment variable CHIMERE_KV_TYPE, and the key `kv-type` in the
 * YAML file of --config or CHIMERE_CONFIG (by default ~/.config/chimere/config.yaml if it exists). Unknown flags,
 * unknown file keys and values out of range are refused by name. Only this module reads the environment. Not
 * thread-safe; interactive commands change values with cfg_set. */
#ifndef CHIMERE_BASE_CONFIG_H
#define CHIMERE_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum cfg_type {
    CFG_BOOL, /* flag without value; --no-NAME; file and environment: true/false/1/0/yes/no/on/off */
    CFG_INT,  /* min..max */
    CFG_FLOAT, /* min..max */
    CFG_BYTES, /* 512M, 15.3GiB */
    CFG_STR,
    CFG_ENUM,      /* one of choices, separated by '|' */
    CFG_LIST,      /* may be given several times; file: a sequence */
    CFG_ALIAS,     /* another name of the option `arg`, only as a flag; not shown in the help */
    CFG_ELSEWHERE, /* a flag of other programs; refused, with `help` as the hint */
};
enum cfg_origin { CFG_DEFAULT, CFG_FILE, CFG_ENV, CFG_FLAG };

struct cfg_opt {
    const char *name;
    char letter; /* short flag, or 0 */
    enum cfg_type type;
    const char *arg; /* placeholder in help, e.g. "FILE"; NULL for CFG_BOOL */
    const char *def; /* default value as text; NULL: unset */
    double min, max;
    const char *choices;
    const char *help;
};

struct cfg;

/* Parses argv[1..]. Options may be at any position; "--" ends them. `tables` is a NULL-terminated list of arrays, each
 * ending with a row whose name is NULL. For --help, it prints the help and returns CHIMERE_ECANCELLED. */
int cfg_parse(struct cfg **out, const struct cfg_opt *const *tables, const char *usage, int argc,
              char **argv, struct err *e);
void cfg_free(struct cfg *c);
/* Sets a new value, checked like a flag; an option that is in no table is refused. */
int cfg_set(struct cfg *c, const char *name, const char *text, struct err *e);
/* Returns whether escape sequences may be written to f: it is a terminal other than "dumb", and NO_COLOR (no-color.org)
 * is not set. */
bool cfg_wants_color(FILE *f);
/* Returns an environment variable that another program's convention defines; NULL if it is unset or empty. */
const char *cfg_env(const char *name);

bool cfg_has(const struct cfg *c, const char *name); /* whether the command has this option */
/* false if the option is unset and has no default */
bool cfg_is_set(const struct cfg *c, const char *name);
bool cfg_bool(const struct cfg *c, const char *name);
int64_t cfg_int(const struct cfg *c, const char *name);
double cfg_float(const struct cfg *c, const char *name);
uint64_t cfg_bytes(const struct cfg *c, const char *name);
const char *cfg_str(const struct cfg *c, const char *name); /* CFG_STR, CFG_ENUM; NULL: unset */
size_t cfg_list(const struct cfg *c, const char *name, const char *const **items);
enum cfg_origin cfg_origin(const struct cfg *c, const char *name);
/* Value as text for display; "" if unset. For options whose name contains "key" or ends with "-token", "(hidden)". */
const char *cfg_text(const struct cfg *c, const char *name);
/* Positional arguments. */
int cfg_n_pos(const struct cfg *c);
const char *cfg_pos(const struct cfg *c, int i); /* NULL if i is out of range */

#endif
