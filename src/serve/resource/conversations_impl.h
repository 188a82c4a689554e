/* conversations_impl.h: shared by the files of /v1/conversations. */
#ifndef CHIMERE_SERVE_RESOURCE_CONVERSATIONS_IMPL_H
#define CHIMERE_SERVE_RESOURCE_CONVERSATIONS_IMPL_H

#include <jansson.h>

#include "odo/memory.h"
#include "serve/http/http_impl.h"
#include "serve/resource/conversations.h"
#include "store/conversation.h"
#include "store/doc_scope.h"

enum {
    CONVERSATION_MAX_ITEMS = 1000, /* items of one request */
    CONVERSATION_MAX_NAME = 80,
    CONVERSATION_DOCUMENTS_NAME = CONVERSATION_MAX_NAME + 8,
    CONVERSATION_MAX_OUT = 32 << 20, /* bytes of one response */
    CONVERSATION_PAGE_BYTES = 8 << 20,
};

/* The owner and the conversation that a request names. */
struct conversation_call {
    struct store *s; /* borrowed from the server */
    char owner[MEMORY_MAX_OWNER], name[CONVERSATION_MAX_NAME], item[CONVERSATION_MAX_NAME];
    int64_t version; /* version in If-Match; 0: any */
};
/* Returns false if an error was sent. */
bool conversations_call(struct http_request *r, struct conversation_call *c);
struct store_conversation_key conversations_key(const struct conversation_call *c);
/* Sends status 200 with out and the conversation's version (0: none), or the error. Takes ownership of out. */
void conversations_reply(struct http_request *r, int rc, int64_t version, struct buf *out,
                         const struct err *e);
/* Reads the conversation again and sends it. */
void conversations_show(struct http_request *r, const struct conversation_call *c, int rc,
                        struct err *e);
int conversations_limit(struct http_request *r, int32_t *limit, struct err *e);

/* The items of a request. The list owns their names, bodies and texts. */
struct conversation_items {
    struct store_item *items; /* owned [n] */
    int32_t n;
};
int conversations_items_read(const json_t *list, struct conversation_items *out, struct err *e);
void conversations_items_fini(struct conversation_items *l);
void conversations_new_name(const char *prefix, char out[CONVERSATION_MAX_NAME]);
/* Writes the name and the scope of the collection that belongs to a conversation. */
int conversations_documents(const char *owner, const char *id,
                            char name[CONVERSATION_DOCUMENTS_NAME],
                            char scope[STORE_DOC_SCOPE_BYTES], struct err *e);

#endif
