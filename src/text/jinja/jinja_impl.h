/* jinja_impl.h: everything that the files of the template engine share.
 *
 *   jinja_lex.c -> jinja_parse.c -> tree -> jinja_scope.c; then jinja_eval.c, which calls
 *   jinja_value.c (values), jinja_string.c (text with provenance), jinja_ops.c (operators, attributes),
 *   jinja_method.c, jinja_filter.c, jinja_filter_seq.c, jinja_test.c, jinja_global.c (built-ins),
 *   jinja_format.c (numbers, % and format()), jinja_json.c (in and out). */
#ifndef CHIMERE_TEXT_JINJA_JINJA_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_IMPL_H

#include "text/jinja/jinja_ast_impl.h"
#include "text/jinja/jinja_builtin_impl.h"
#include "text/jinja/jinja_string_impl.h"
#include "text/jinja/jinja_value_impl.h"

#endif
