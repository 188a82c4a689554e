/* odo_tools.h: the tools of one round of a run: which are offered, and running those that the model calls.
 *
 * An identical call (name and arguments) is not run twice in one question: the first result is returned again. Calls of
 * one round run in parallel, each on a thread of its own; those that change files or memory run alone, in their order.
 * What a call does is reported while it runs: notes "tool_start", "tool_output" (of programs and MCP servers, 16 KiB at
 * most per call) and "tool". Called by the run's own thread. */
#ifndef CHIMERE_ODO_ODO_TOOLS_H
#define CHIMERE_ODO_ODO_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

struct odo_round;
struct odo_run;
struct yamlfile_list;

bool odo_tools_listed(const struct yamlfile_list *l, const char *name);
/* Is there a function of this name in a request's tools? */
bool odo_tools_has(const json_t *tools, const char *name);
/* The client's tools, then ours; a name that the client uses is the client's. A new reference; NULL: none. */
json_t *odo_tools_offered(const struct odo_run *r, const struct odo_round *round);
/* Reports, once per run, tools that were withheld after text of strangers, and those of them that the user could allow. */
void odo_tools_withheld(struct odo_run *r, const struct odo_round *round);
/* Runs the calls [{"id", "name", "arguments"}] and appends their results to the round's messages. */
int odo_tools_run(struct odo_run *r, const struct odo_round *round, const json_t *calls);

#endif
