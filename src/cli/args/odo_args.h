/* odo_args.h: the orchestrator of a command: its options, and what they open. */
#ifndef CHIMERE_CLI_ODO_ARGS_H
#define CHIMERE_CLI_ODO_ARGS_H

#include "cli/cli.h"
#include "cli/args/encoder_args.h"
#include "retrieval/docs.h"
#include "tools/mcp.h"
#include "odo/odo.h"
#include "retrieval/web.h"
#include "store/store.h"

/* clang-format off */
#define ODO_OPTIONS                                                                                \
    {"pipelines", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of pipelines (default: the one installed with the program)"}, \
    {"db", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "database of documents, decisions and memory (default: chimere.db in the user's data directory)"}, \
    {"keep-days", 0, CFG_INT, "N", "30", 0, 36500, NULL, "days after which records of requests, decisions and scores are deleted; 0: never"}, \
    {"keep-size", 0, CFG_BYTES, "SIZE", "256M", 0, 0, NULL, "maximum size of the records of each of these kinds; 0: no limit"}, \
    {"embedding-model", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "embedding model that finds documents by meaning; serve also uses it for /v1/embeddings"}, \
    {"embedding-url", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "server whose /v1/embeddings is used instead of --embedding-model"}, \
    {"embedding-name", 0, CFG_STR, "NAME", "default", 0, 0, NULL, "name of the embedding model on that server"}, \
    {"embedding-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "file with the API key of that server"}, \
    {"rerank-model", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "cross-encoder that orders the documents found; serve also uses it for /v1/rerank (default: none)"}, \
    {"prm", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "process reward model that scores the steps of answers for strategies (default: the model judges)"}, \
    {"files", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder that read_file and write_file may access (default: none)"}, \
    {"files-quota", 0, CFG_BYTES, "SIZE", "64M", 0, 0, NULL, "maximum size of what write_file may write until the program ends"}, \
    {"files-build", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "write_file may write what build tools execute: Makefile, package.json, ..."}, \
    {"docs-trusted", 0, CFG_LIST, "DIR", NULL, 0, 0, NULL, "folder of documents that only you can write to: its passages do not restrict tools; may be repeated"}, \
    {"files-trusted", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "only you can write to the folder of --files: its text does not restrict later tools"}, \
    {"run-code", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "offer the tool run_code, which runs programs in a sandbox; --no-run-code"}, \
    {"bare-parsing", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "read HTML and PDF even if the kernel allows no sandbox for their parsers"}, \
    {"searxng", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "SearXNG server for web search (default: no web search)"},  \
    {"brave-key", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "file with an API key of Brave Search"},         \
    {"mcp", 0, CFG_LIST, "NAME=COMMAND", NULL, 0, 0, NULL, "MCP server whose tools are offered: a command line or a URL; may be repeated"}, \
    {"mcp-env", 0, CFG_LIST, "NAME=VARIABLE", NULL, 0, 0, NULL, "environment variable that the MCP server of that name gets as well; may be repeated"}, \
    {"otlp", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "collector of OpenTelemetry traces of the orchestrator (OTLP over HTTP); texts are not sent"}, \
    {"intent-ms", 0, CFG_INT, "N", "300", -1, 60000, NULL, "time the model may take to judge a message; -1: rules alone"}
/* clang-format on */

enum { ODO_RIG_MAX_MCP = 16 };

struct odo_rig {
    struct store *store;
    struct docs *docs;
    struct encoder_rig embedder, ranker, scorer;
    struct docs_models models; /* owned: wraps the two above */
    struct web *web;           /* NULL: no source configured */
    struct reward *prm;        /* owned: wraps scorer; NULL: none */
    struct odo *odo;
    struct mcp *mcp[ODO_RIG_MAX_MCP];
    int n_mcp;
};

/* Reads a secret from the file that an option names, without the line end; *out is NULL if the option is not set.
 * odo_args_forget wipes and frees it. */
int odo_args_key(const struct cfg *c, const char *option, char **out, struct err *e);
void odo_args_forget(char *key);

/* Opens the store of option db, or else chimere.db in the user's data folder. */
int odo_args_store(const struct cfg *c, struct store **out, struct err *e);

/* Returns true if an option is set that only the orchestrator uses. */
bool odo_args_are_given(const struct cfg *c);

/* Opens the process reward model of option prm; *out is NULL if the option is not set. Close out, then rig. */
struct reward;
int odo_args_prm(const struct cfg *c, struct encoder_rig *rig, struct reward **out, struct err *e);

/* backend NULL: only decisions. */
int odo_rig_open(struct odo_rig *r, const struct cfg *c, struct backend *backend, struct err *e);
/* Opens everything except the orchestrator; the caller owns *tools. */
int odo_rig_tools(struct odo_rig *r, const struct cfg *c, struct tool_set **tools, struct err *e);
/* Opens store and documents, without the orchestrator. */
int odo_rig_store(struct odo_rig *r, const struct cfg *c, struct err *e);
void odo_rig_close(struct odo_rig *r);

#endif
