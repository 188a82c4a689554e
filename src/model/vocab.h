/* vocab.h: the tokenizer and the chat templates of a model file.
 *
 * Reads the keys tokenizer.ggml.* into the arrays that text/tok/tok.h takes, checks that they are consistent, and
 * applies the defaults of other loaders. Errors name the key. Any thread. */
#ifndef CHIMERE_MODEL_VOCAB_H
#define CHIMERE_MODEL_VOCAB_H

#include "format/gguf.h"
#include "text/tok/tok.h"

/* The tokenizer owns copies: the file may be closed afterwards. CHIMERE_EUNSUPPORTED if the file has no
 * vocabulary or one of an unknown kind. */
int vocab_load(struct tok **out, const struct gguf *g, struct err *e);
/* The chat template of that name ("tool_use", "rag"), or the default one for NULL: a view, valid as long as
 * g; an empty slice if there is none. */
struct slice vocab_chat_template(const struct gguf *g, const char *name);
/* True if the vocabulary, the chat templates or their use depend on that key. */
bool vocab_reads_key(struct slice key);

#endif
