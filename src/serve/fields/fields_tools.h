/* fields_tools.h: tools and tool_choice of every API. */
#ifndef CHIMERE_SERVE_FIELDS_TOOLS_H
#define CHIMERE_SERVE_FIELDS_TOOLS_H

#include "serve/fields/fields.h"

int fields_tools(struct fields *f, json_t *tools, struct err *e);    /* for any API */
int fields_functions(struct fields *f, json_t *list, struct err *e); /* OpenAI's old form */
int fields_choice(struct fields *f, json_t *v, struct err *e);       /* tool_choice */
int fields_search(struct fields *f, json_t *v, const char *name,
                  struct err *e);                         /* web_search_options */
int fields_check_choice(struct fields *f, struct err *e); /* after all fields */
/* Returns {"input": TEXT} as JSON text, the arguments of a custom tool's call; new. */
json_t *fields_custom_arguments(json_t *input);
/* Returns the name that the model sees for a tool of a namespace; owned, NULL: too long. */
char *fields_flat_name(const char *space, const char *name);

#endif
