/* vocab.h: the tokenizer and the chat templates that a model file carries.
 *
 * Reads the keys tokenizer.ggml.* into the arrays that text/tok/tok.h is fed, checks that they belong
 * together, and knows the defaults of the field's loaders. Errors name the key. Any thread. */
#ifndef CHIMERE_MODEL_VOCAB_H
#define CHIMERE_MODEL_VOCAB_H

#include "format/gguf.h"
#include "text/tok/tok.h"

/* The tokenizer owns copies: the file may be closed afterwards. CHIMERE_EUNSUPPORTED where the file has
 * no vocabulary or one of a kind that is not known here. */
int vocab_load(struct tok **out, const struct gguf *g, struct err *e);
/* The chat template of that name ("tool_use", "rag"), the default one for NULL: a view that lives as
 * long as g; an empty slice if there is none. */
struct slice vocab_chat_template(const struct gguf *g, const char *name);

#endif
