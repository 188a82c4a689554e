/* chat_form_impl.h: the table of the forms of calls. */
#ifndef CHIMERE_TEXT_CHAT_FORM_IMPL_H
#define CHIMERE_TEXT_CHAT_FORM_IMPL_H

#include "text/chat/chat.h"

/* A call as tags: open NAME name_end, then key_open KEY key_end [value_open] VALUE value_end, then call_end.
 * Lists end with NULL. */
struct chat_tags {
    const char *open[3]; /* empty: the name follows the mark */
    const char *name_end[5];
    const char *key_open[3];
    const char *key_end, *value_open;
    const char *value_end[2];
    const char *call_end[2];
    const char *outer_end[4]; /* tags that may end the call if call_end is missing */
    bool lines;               /* a line break next to a value does not belong to the value */
};

enum chat_reader {
    CHAT_READ_ANY, /* the first byte decides: JSON, a list, tags or Python */
    CHAT_READ_BARE,
    CHAT_READ_MISTRAL,
    CHAT_READ_DEEPSEEK,
    /* head[0] ends the name; within the name, head[1] ends a part that is not the name */
    CHAT_READ_HEAD,
    CHAT_READ_GEMMA,
    CHAT_READ_HARMONY, /* a mark begins the head of a message, which states its kind */
};

struct chat_form {
    const char *name;
    enum chat_reader reader;
    bool is_keyed;        /* the key of the argument object is the function's name */
    const char *marks[6]; /* open a call */
    const char *ends[4];  /* may follow a call */
    const char *skip[6];  /* dropped anywhere */
    const char *head[2];
    const struct chat_tags *tags; /* static; NULL: none */
};

const struct chat_form *chat_form_of(enum chat_calls calls);
bool chat_form_has(const struct jinja *j, const char *word); /* searches the template's own text */
enum chat_calls chat_form_find(const struct jinja *j);
const struct chat_think *chat_think_find(const struct jinja *j);
const struct chat_think *chat_think_default(void);

#endif
