/* api_question.h: converts a request of chimere.h to a struct request. */
#ifndef CHIMERE_API_API_QUESTION_H
#define CHIMERE_API_API_QUESTION_H

#include "chimere.h"
#include "backend/backend.h"

/* Either messages (JSON) or text is given; the other is NULL. Initialises *request; errors begin with the option's
 * name. */
int api_question(struct request *request, const char *messages, const char *text,
                 const struct chimere_options *o, struct err *e);

#endif
