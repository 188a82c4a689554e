/* chat_types.h: which types a parameter of an XML call may have.
 *
 * An XML call does not state whether `5` is a number or a string. One rule decides, both for the parser of answers
 * and for the grammar that forces calls. If a parameter may only be a string, or if its schema does not give a
 * type, the value is the text itself. Otherwise, a value that parses as JSON of one of the other types has that
 * type, and any other value is a string. So the grammar does not allow a string that would be parsed as another
 * type (for a union of string and integer: not the string `5`).
 *
 * The types are those of all schemas that may apply to the parameter, through $ref, allOf, anyOf, oneOf,
 * if/then/else and dependencies. There may be more types than can occur. There are fewer only if a schema exceeds
 * the work limit. Pure functions; any thread. */
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

/* Returns the types of parameter `name` under the schema of all parameters; 0: not given. */
unsigned chat_schema_types(json_t *schema, const char *name);
/* Returns the types of a parameter of a tool in the list. */
unsigned chat_param_types(json_t *tools, const char *function, const char *param);
/* Returns true if a value of these types is a string that is written as it is, not as JSON. */
bool chat_is_text(unsigned types);
bool chat_has_tool(json_t *tools, const char *function);
/* Returns true if a tool's name begins with the n bytes. */
bool chat_has_tool_prefix(json_t *tools, const char *text, size_t n);

#endif
