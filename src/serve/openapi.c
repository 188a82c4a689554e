#include "serve/openapi.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "serve/fields/fields.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { MAX_OUT = 4 << 20 };

/* What cannot be derived from the tables. query: fields after '?'. body: members, each with a letter for its type: s
 * text, n number, i integer, b boolean, o object, a list; '*' after the letter: required. "raw": the body is a file. */
struct about {
    const char *method, *path;
    const char *summary, *query, *body;
    unsigned fields; /* enum fields_api: the body has the members of the field table */
};
/* clang-format off */
static const struct about abouts[] = {
    {"POST", "/v1/chat/completions", "OpenAI's chat completions", NULL, NULL, FIELDS_CHAT},
    {"POST", "/v1/completions", "OpenAI's completions", NULL, NULL, FIELDS_TEXT},
    {"POST", "/v1/responses", "OpenAI's responses", NULL, NULL, FIELDS_RESPONSES},
    {"POST", "/v1/messages", "Anthropic's messages", NULL, NULL, FIELDS_MESSAGES},
    {"POST", "/v1/messages/count_tokens", "Tokens of a request for messages", NULL, NULL, FIELDS_MESSAGES},
    {"POST", "/v1/responses/input_tokens", "Tokens of a request for responses", NULL, NULL, FIELDS_RESPONSES},
    {"POST", "/v1/chat/completions/input_tokens", "Tokens of a request for chat completions", NULL, NULL, FIELDS_CHAT},
    {"GET", "/v1/responses/*", "A response that is kept, or its input items", NULL, NULL, 0},
    {"DELETE", "/v1/responses/*", "Delete a response that is kept", NULL, NULL, 0},
    {"POST", "/v1/embeddings", "OpenAI's embeddings", NULL, "model:s input: encoding_format:s dimensions:i user:s", 0},
    {"POST", "/v1/rerank", "Documents in order of relevance", NULL, "model:s query:s documents:a texts:a top_n:i return_documents:b", 0},
    {"POST", "/reranking", "Documents in order of relevance", NULL, "model:s query:s documents:a texts:a top_n:i return_documents:b", 0},
    {"POST", "/v1/audio/speech", "Text to speech, by the server of --tts-url", NULL, "model:s input:s* voice:s response_format:s speed:n", 0},
    {"POST", "/v1/audio/transcriptions", "Speech to text, by the server of --stt-url", NULL, "raw", 0},
    {"POST", "/mcp", "Model Context Protocol: the orchestrator's tools", NULL, "jsonrpc:s method:s params:o id:", 0},
    {"DELETE", "/mcp", "End a session of the Model Context Protocol", NULL, NULL, 0},
    {"GET", "/v1/memory", "The caller's facts", "history", NULL, 0},
    {"POST", "/v1/memory", "Remember a fact", NULL, "text:s* pinned:b", 0},
    {"POST", "/v1/memory/*", "Pin or edit a fact", NULL, "pinned:b text:s", 0},
    {"DELETE", "/v1/memory/*", "Forget a fact, or all", NULL, NULL, 0},
    {"GET", "/v1/conversations", "Conversations that are kept", "limit after search project", NULL, 0},
    {"POST", "/v1/conversations", "Keep a conversation", NULL, "title:s project:s pinned:b metadata:o settings:o items:a", 0},
    {"GET", "/v1/conversations/*", "A conversation", NULL, NULL, 0},
    {"POST", "/v1/conversations/*", "Change a conversation", NULL, "title:s project:s pinned:b metadata:o settings:o", 0},
    {"DELETE", "/v1/conversations/*", "Delete a conversation", NULL, NULL, 0},
    {"GET", "/v1/conversations/*/items", "Items of a conversation", "limit after order", NULL, 0},
    {"POST", "/v1/conversations/*/items", "Add items", NULL, "items:a*", 0},
    {"GET", "/v1/conversations/*/items/*", "An item", NULL, NULL, 0},
    {"POST", "/v1/conversations/*/items/*", "Replace an item in its place", NULL, "type:s role:s content:", 0},
    {"DELETE", "/v1/conversations/*/items/*", "Delete an item", "below", NULL, 0},
    {"GET", "/v1/skills", "Skills of the orchestrator", NULL, NULL, 0},
    {"GET", "/v1/confirm", "Calls of tools that wait for the caller's permission", NULL, NULL, 0},
    {"POST", "/v1/confirm", "Allow or deny a call that waits", NULL, "id:s* allow:b*", 0},
    {"POST", "/v1/feedback", "A user's rating of an answer", NULL, "answer:s* score:i rating:s comment:s correction:s", 0},
    {"POST", "/models/load", "Load a model", NULL, "model:s*", 0},
    {"POST", "/models/unload", "Unload a model", NULL, "model:s*", 0},
    {"GET", "/v1/models", "Models that requests may name", NULL, NULL, 0},
    {"GET", "/v1/models/*", "A model", NULL, NULL, 0},
    {"GET", "/v1/status", "State and counters of the server", NULL, NULL, 0},
    {"GET", "/metrics", "Metrics in the format of Prometheus", NULL, NULL, 0},
    {"POST", "/drain", "Refuse new work", NULL, NULL, 0},
    {"DELETE", "/drain", "Accept new work again", NULL, NULL, 0},
    {"POST", "/tokenize", "Tokens of a text", NULL, "model:s content:s add_special:b parse_special:b with_pieces:b", 0},
    {"POST", "/detokenize", "Text of tokens", NULL, "model:s tokens:a*", 0},
    {"POST", "/apply-template", "The prompt of a conversation", NULL, "model:s messages:a*", 0},
    {"GET", "/chimere/v1/audio", "The servers to which audio is sent", NULL, NULL, 0},
    {"GET", "/chimere/v1/recommend", "Models that fit this machine", NULL, NULL, 0},
    {"GET", "/chimere/v1/models", "Models on disk, with the memory that each takes", NULL, NULL, 0},
    {"POST", "/chimere/v1/models/pull", "Fetch a model, with progress as lines of JSON", NULL, "model:s*", 0},
    {"GET", "/chimere/v1/ramp", "Graphics cards that a model can be made to fit", NULL, NULL, 0},
    {"POST", "/chimere/v1/ramp", "Make a smaller copy of a model, with progress as lines of JSON", NULL, "model:s* out:s* bpw:n size:s card:s ctx:i mode:s text:s predict:b", 0},
    {"GET", "/chimere/v1/documents", "Documents that are kept", "collection limit after", NULL, 0},
    {"POST", "/chimere/v1/documents", "Keep a document; in a shared collection: for administrators", "name* collection", "raw", 0},
    {"DELETE", "/chimere/v1/documents", "Delete a document; of a shared collection: for administrators", "name* collection", NULL, 0},
    {"GET", "/chimere/v1/documents/search", "Passages of documents", "query* collection limit", NULL, 0},
    {"POST", "/chimere/v1/extract", "Text of a file", "name*", "raw", 0},
    {"POST", "/chimere/v1/run", "Run a program in the sandbox", NULL, "language:s* code:s*", 0},
    {"GET", "/chimere/v1/answers/*", "A streamed answer from its beginning, while it is kept", NULL, NULL, 0},
    {"DELETE", "/chimere/v1/answers/*", "Stop an answer that is kept", NULL, NULL, 0},
    {"GET", "/chimere/v1/requests", "Requests that were answered", "limit before", NULL, 0},
    {"GET", "/chimere/v1/decisions", "Decisions of the orchestrator", "limit", NULL, 0},
    {"GET", "/chimere/v1/quality", "Worth of answers by day, and good ones as examples", NULL, NULL, 0},
    {"GET", "/chimere/v1/nights", "Nights: what was learned, and what serves", NULL, NULL, 0},
    {"POST", "/chimere/v1/nights", "Return to an earlier night", NULL, "night:i*", 0},
    {"GET", "/chimere/v1/nights/*", "The report of a night, as a page", NULL, NULL, 0},
    {"GET", "/chimere/v1/keys", "API keys with their limits and use", NULL, NULL, 0},
    {"POST", "/chimere/v1/keys", "Make an API key", NULL, "name:s* role:s active:i per_minute:i tokens_per_day:i days:i", 0},
    {"POST", "/chimere/v1/keys/*", "Change a key's limits", NULL, "role:s active:i per_minute:i tokens_per_day:i days:i", 0},
    {"DELETE", "/chimere/v1/keys/*", "Revoke a key", NULL, NULL, 0},
    {"GET", "/chimere/v1/personas", "Personas that the caller wrote", NULL, NULL, 0},
    {"POST", "/chimere/v1/personas", "Write a persona", NULL, "name:s* text:s*", 0},
    {"POST", "/chimere/v1/personas/*", "Change a persona", NULL, "name:s* text:s*", 0},
    {"DELETE", "/chimere/v1/personas/*", "Delete a persona", NULL, NULL, 0},
    {"GET", "/chimere/v1/pipelines", "Pipelines of the orchestrator, with their texts", NULL, NULL, 0},
    {"POST", "/chimere/v1/pipelines/check", "Check the text of a pipeline", NULL, "name:s* text:s*", 0},
    {"POST", "/chimere/v1/pipelines/*", "Write a pipeline", NULL, "text:s*", 0},
    {"DELETE", "/chimere/v1/pipelines/*", "Delete a pipeline", NULL, NULL, 0},
    {"POST", "/chimere/v1/explain", "What the orchestrator would do with a question", NULL, "question:s* odo:o", 0},
    {"GET", "/chimere/v1/engram", "Tables of n-grams", NULL, NULL, 0},
    {"POST", "/chimere/v1/engram", "Make a table of a text", "name* model", "raw", 0},
    {"POST", "/chimere/v1/engram/look", "What a table knows of a text, and expects after it", NULL, "model:s table:s* text:s*", 0},
    {"DELETE", "/chimere/v1/engram/*", "Delete a table", NULL, NULL, 0},
    {"POST", "/completion", "llama-server's completion", NULL, NULL, 0},
    {"POST", "/infill", "llama-server's infill", NULL, NULL, 0},
    {"GET", "/lora-adapters", "Adapters of the model", NULL, NULL, 0},
    {"GET", "/props", "Properties of the model", NULL, NULL, 0},
    {"GET", "/slots", "Slots for concurrent answers, and which are in use", NULL, NULL, 0},
    {"POST", "/slots/*", "Save, restore or erase the conversation of a slot", "action*", "filename:s model:s", 0},
    {"GET", "/api/version", "Ollama's version", NULL, NULL, 0},
    {"GET", "/api/tags", "Ollama's list of models", NULL, NULL, 0},
    {"GET", "/api/ps", "Ollama's list of loaded models", NULL, NULL, 0},
    {"POST", "/api/show", "Ollama's description of a model", NULL, "model:s name:s", 0},
    {"POST", "/api/chat", "Ollama's chat", NULL, NULL, 0},
    {"POST", "/api/generate", "Ollama's generate", NULL, NULL, 0},
    {"POST", "/api/embed", "Ollama's embeddings", NULL, NULL, 0},
    {"POST", "/api/embeddings", "Ollama's former embeddings route", NULL, NULL, 0},
    {"POST", "/api/pull", "Ollama's pull: succeeds for a model that is here", NULL, "model:s name:s", 0},
    {"DELETE", "/api/delete", "Ollama's delete: refused", NULL, NULL, 0},
    {"GET", "/openapi.json", "This document", NULL, NULL, 0},
    {"GET", "/", "The page, or the server's health", NULL, NULL, 0},
    {"GET", "/studio/*", "A file of the page", NULL, NULL, 0},
    {"GET", "/v1", "Whether the server runs", NULL, NULL, 0},
    {"GET", "/health", "Whether the server runs", NULL, NULL, 0},
    {"GET", "/health/live", "Whether the server runs", NULL, NULL, 0},
    {"GET", "/health/ready", "Whether the server accepts work", NULL, NULL, 0},
    {"GET", "/ready", "Whether the server accepts work", NULL, NULL, 0},
};
/* clang-format on */

static const struct about *find_about(const struct route *t) {
    for (size_t i = 0; i < sizeof abouts / sizeof *abouts; i++)
        if (!strcmp(abouts[i].method, t->method) && !strcmp(abouts[i].path, t->path))
            return &abouts[i];
    return NULL;
}

/* ---- paths ---- */

static const char *part_name(const char *path, int n) {
    if (str_starts(path, "/v1/conversations/")) return n ? "item_id" : "conversation_id";
    return str_starts(path, "/studio/") ? "file" : "id";
}

/* Replaces each '*' by {NAME}. Returns their number. */
static int put_path(struct buf *out, const char *path) {
    int n = 0;
    for (const char *p = path; *p; p++) {
        if (*p == '*') buf_printf(out, "{%s}", part_name(path, n++));
        else buf_putc(out, *p);
    }
    return n;
}

static void put_operation_id(struct buf *out, const struct route *t) {
    for (const char *p = t->method; *p; p++) buf_putc(out, (char)tolower((unsigned char)*p));
    for (const char *p = t->path; *p; p++) {
        if (*p == '*') buf_puts(out, "_one");
        else buf_putc(out, isalnum((unsigned char)*p) ? *p : '_');
    }
}

static void put_parameter(struct buf *out, const char *name, size_t n, const char *in,
                          bool required, bool *first) {
    buf_printf(out,
               "%s{\"name\":\"%.*s\",\"in\":\"%s\",\"required\":%s,\"schema\":{\"type\":"
               "\"string\"}}",
               *first ? "" : ",", (int)n, name, in, required ? "true" : "false");
    *first = false;
}

static void put_parameters(struct buf *out, const struct route *t, const struct about *a) {
    bool first = true;
    int n = 0;
    buf_puts(out, ",\"parameters\":[");
    for (const char *p = t->path; *p; p++) {
        if (*p != '*') continue;
        const char *name = part_name(t->path, n++);
        put_parameter(out, name, strlen(name), "path", true, &first);
    }
    for (const char *p = a && a->query ? a->query : ""; *p;) {
        size_t len = strcspn(p, " *");
        put_parameter(out, p, len, "query", p[len] == '*', &first);
        p += len + strspn(p + len, " *");
    }
    buf_putc(out, ']');
}

/* ---- bodies ---- */

static const char *type_of(char letter) {
    static const struct {
        char letter;
        const char *schema;
    } types[] = {{'s', "{\"type\":\"string\"}"},  {'n', "{\"type\":\"number\"}"},
                 {'i', "{\"type\":\"integer\"}"}, {'b', "{\"type\":\"boolean\"}"},
                 {'o', "{\"type\":\"object\"}"},  {'a', "{\"type\":\"array\",\"items\":{}}"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].letter == letter) return types[i].schema;
    return "{}";
}

static void put_members(struct buf *out, const char *body) {
    struct buf required;
    buf_init(&required, 4096);
    buf_puts(out, "{\"type\":\"object\",\"properties\":{");
    for (const char *p = body; *p;) {
        size_t n = strcspn(p, ":");
        char letter = p[n] ? p[n + 1] : 0;
        buf_printf(out, "%s\"%.*s\":%s", p == body ? "" : ",", (int)n, p, type_of(letter));
        const char *end = p + strcspn(p, " ");
        if (end[-1] == '*') buf_printf(&required, "%s\"%.*s\"", required.n ? "," : "", (int)n, p);
        p = end + strspn(end, " ");
    }
    buf_putc(out, '}');
    if (required.n) buf_printf(out, ",\"required\":[%s]", required.p);
    buf_putc(out, '}');
    buf_fini(&required);
}

static void put_body(struct buf *out, const struct about *a) {
    static const char json[] = ",\"requestBody\":{\"content\":{\"application/json\":{\"schema\":";
    if (!a || (!a->body && !a->fields)) return;
    if (a->body && !strcmp(a->body, "raw")) {
        buf_puts(out, ",\"requestBody\":{\"content\":{\"application/octet-stream\":{\"schema\":{"
                      "\"type\":\"string\",\"format\":\"binary\"}}}}");
        return;
    }
    buf_puts(out, json);
    if (a->fields) fields_put_schema((enum fields_api)a->fields, out);
    else put_members(out, a->body);
    buf_puts(out, "}}}");
}

/* ---- the document ---- */

static void put_operation(struct buf *out, const struct route *t) {
    const struct about *a = find_about(t);
    for (const char *p = t->method; *p; p++)
        buf_printf(out, "%s%c", p == t->method ? "\"" : "", tolower((unsigned char)*p));
    buf_puts(out, "\":{\"operationId\":\"");
    put_operation_id(out, t);
    buf_puts(out, "\",\"summary\":");
    json_out_string(out, a ? a->summary : t->path);
    if (t->flags & ROUTE_OPEN) buf_puts(out, ",\"security\":[]");
    if (t->flags & ROUTE_ADMIN) buf_puts(out, ",\"description\":\"For administrators.\"");
    put_parameters(out, t, a);
    put_body(out, a);
    buf_puts(out, ",\"responses\":{\"200\":{\"description\":\"The answer\"},\"default\":{"
                  "\"description\":\"An error\",\"content\":{\"application/json\":{\"schema\":{"
                  "\"$ref\":\"#/components/schemas/");
    buf_puts(out, t->shape == SHAPE_ANTHROPIC ? "AnthropicError"
                  : t->shape == SHAPE_OLLAMA  ? "OllamaError"
                                              : "Error");
    buf_puts(out, "\"}}}}}}");
}

static bool is_first_of_path(const struct route *t) {
    for (const struct route *u = routes; u < t; u++)
        if (!strcmp(u->path, t->path)) return false;
    return true;
}

static void put_paths(struct buf *out) {
    bool first = true;
    for (const struct route *t = routes; t->path; t++) {
        if (!is_first_of_path(t)) continue;
        buf_puts(out, first ? "\"" : ",\"");
        first = false;
        put_path(out, t->path);
        buf_puts(out, "\":{");
        bool begun = false;
        for (const struct route *u = t; u->path; u++) {
            if (strcmp(u->path, t->path) != 0) continue;
            if (begun) buf_putc(out, ',');
            put_operation(out, u);
            begun = true;
        }
        buf_putc(out, '}');
    }
}

void openapi_json(struct http_request *r) {
    static const char errors[] =
        "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{"
        "\"type\":\"object\",\"required\":[\"message\",\"type\"],\"properties\":{\"message\":{"
        "\"type\":\"string\"},\"type\":{\"type\":\"string\"},\"param\":{\"type\":[\"string\","
        "\"null\"]},\"code\":{\"type\":[\"string\",\"null\"]}}}}},"
        "\"AnthropicError\":{\"type\":\"object\",\"required\":[\"type\",\"error\"],\"properties\":"
        "{\"type\":{\"const\":\"error\"},\"error\":{\"type\":\"object\",\"required\":[\"type\","
        "\"message\"]}}},"
        "\"OllamaError\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{"
        "\"type\":\"string\"}}}";
    struct buf out;
    buf_init(&out, MAX_OUT);
    buf_puts(&out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Chimere\",\"version\":\"1\"},"
                   "\"security\":[{\"key\":[]}],\"paths\":{");
    put_paths(&out);
    buf_printf(&out,
               "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":"
               "\"bearer\"}},\"schemas\":{%s}}}",
               errors);
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
