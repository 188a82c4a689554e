/* api_question.h: what a caller of chimere.h asks, as the engine is asked. */
#ifndef CHIMERE_API_API_QUESTION_H
#define CHIMERE_API_API_QUESTION_H

#include "chimere.h"
#include "backend/backend.h"

/* messages (JSON) or text, the other NULL. ask is initialised; errors begin with the option's name. */
int api_question(struct request *request, const char *messages, const char *text,
                 const struct chimere_options *o, struct err *e);

#endif
