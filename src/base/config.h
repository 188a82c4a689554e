/* config.h: one table of options; values from default, file, environment and flag, in that order.
 *
 * An option `kv-type` is the flag --kv-type, the environment variable CHIMERE_KV_TYPE and the key
 * `kv-type` of the YAML file given by --config or CHIMERE_CONFIG (else
 * ~/.config/chimere/config.yaml where that exists). Unknown flags, file keys and values out of range
 * are refused by name. The only place that reads the environment. Not thread-safe; what an interactive
 * command changes later goes through cfg_set. */
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
    CFG_ALIAS,     /* another spelling of the option `arg`, as a flag only; not in the help */
    CFG_ELSEWHERE, /* a flag of other programs; refused with `help` as the hint */
};
enum cfg_origin { CFG_DEFAULT, CFG_FILE, CFG_ENV, CFG_FLAG };

struct cfg_opt {
    const char *name;
    char letter; /* short flag or 0 */
    enum cfg_type type;
    const char *arg; /* placeholder in help, e.g. "FILE"; NULL for CFG_BOOL */
    const char *def; /* default as text; NULL: unset */
    double min, max;
    const char *choices;
    const char *help;
};

struct cfg;

/* Parses argv[1..]; options may stand anywhere, "--" ends them. Tables are concatenated: `tables` is
 * a NULL-terminated list of arrays that each end with a row whose name is NULL. On --help the result
 * is CHIMERE_ECANCELLED after the help was printed. */
int cfg_parse(struct cfg **out, const struct cfg_opt *const *tables, const char *usage, int argc,
              char **argv, struct err *e);
void cfg_free(struct cfg *c);
/* A new value, checked as a flag's; options that are in no table are refused. */
int cfg_set(struct cfg *c, const char *name, const char *text, struct err *e);
/* Escape sequences are welcome on this descriptor: a terminal that is not "dumb", and no NO_COLOR
 * (no-color.org) in the environment. */
bool cfg_wants_color(FILE *f);
/* A variable that another program's convention defines, not empty; NULL: unset. */
const char *cfg_env(const char *name);

bool cfg_has(const struct cfg *c, const char *name);    /* whether the command has that option */
bool cfg_is_set(const struct cfg *c, const char *name); /* false only for unset without default */
bool cfg_bool(const struct cfg *c, const char *name);
int64_t cfg_int(const struct cfg *c, const char *name);
double cfg_float(const struct cfg *c, const char *name);
uint64_t cfg_bytes(const struct cfg *c, const char *name);
const char *cfg_str(const struct cfg *c, const char *name); /* CFG_STR, CFG_ENUM; NULL: unset */
size_t cfg_list(const struct cfg *c, const char *name, const char *const **items);
enum cfg_origin cfg_origin(const struct cfg *c, const char *name);
/* Value as text for display, "" when unset. Options whose name contains "key" or ends on "-token"
 * show "(hidden)". */
const char *cfg_text(const struct cfg *c, const char *name);
/* Positional arguments. */
int cfg_n_pos(const struct cfg *c);
const char *cfg_pos(const struct cfg *c, int i); /* NULL beyond the end */

#endif
