/* lark.h: converts a grammar in Lark's syntax to one regular expression, for the texts of custom tools.
 *
 * Supported: rules and terminals, strings (also with the flag i), ranges "a".."z", regular expressions without flags,
 * groups, [optional], ? * + ~n ~n..m, alternatives, aliases, priorities, and %import of common's terminals. Refused, by
 * name: rules that contain themselves, %ignore and other directives, templates. */
#ifndef CHIMERE_SERVE_LARK_H
#define CHIMERE_SERVE_LARK_H

#include <stddef.h>

#include "base/err.h"

/* *out: "^(?:...)$", the expression of the rule `start`; free it with mem_free. */
int lark_pattern(const char *text, size_t n, char **out, struct err *e);

#endif
