/* chat_types.h: which types a parameter of an XML call may have.
 *
 * An XML call does not say whether `5` is a number or a text. One rule decides, for the parser of answers
 * and for the grammar that forces calls: if a parameter may only be a string, or if its schema does not
 * say, the value is the text as it stands. Otherwise a value that reads as JSON of one of the other types
 * has that type, and every other value is a text. A grammar therefore does not allow a text that would be
 * read as something else (union of string and integer: no text `5`).
 *
 * The types are those of all schemas that may apply to the parameter, through $ref, allOf, anyOf, oneOf,
 * if/then/else and dependencies; perhaps more than can occur, never fewer unless a schema is larger than
 * the work done for it. Pure functions; any thread. */
#ifndef CHIMERE_TEXT_CHAT_CHAT_TYPES_H
#define CHIMERE_TEXT_CHAT_CHAT_TYPES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    CHAT_T_STRING = 1,
    CHAT_T_INTEGER = 2,
    CHAT_T_NUMBER = 4,
    CHAT_T_BOOLEAN = 8,
    CHAT_T_NULL = 16,
    CHAT_T_OBJECT = 32,
    CHAT_T_ARRAY = 64,
};

/* Of parameter `name` under the schema of all parameters; 0: the schema does not say. */
unsigned chat_schema_types(json_t *schema, const char *name);
/* Of a parameter of a tool of the list. */
unsigned chat_param_types(json_t *tools, const char *function, const char *param);
/* The value is the text as it stands. */
bool chat_is_text(unsigned types);
bool chat_has_tool(json_t *tools, const char *function);
/* A tool's name begins with the n bytes. */
bool chat_has_tool_prefix(json_t *tools, const char *text, size_t n);

#endif
