/* odo_tools.h: the tools of one round of a run: which are offered, and how calls of the model are run.
 *
 * A call with the same name and arguments runs once per question; later calls get the first result. The calls of
 * one round run in parallel, each on its own thread. Calls that change files or memory run alone, in their order.
 * The progress of a call is reported while it runs: notes "tool_start", "tool_output" (of programs and MCP
 * servers, at most 16 KiB per call) and "tool". Called by the run's own thread. */
#ifndef CHIMERE_ODO_ODO_TOOLS_H
#define CHIMERE_ODO_ODO_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

struct odo_round;
struct odo_run;
struct yamlfile_list;

bool odo_tools_listed(const struct yamlfile_list *l, const char *name);
/* Returns true if a request's tools contain a function of this name. */
bool odo_tools_has(const json_t *tools, const char *name);
/* Returns the client's tools, then the orchestrator's. If both have a name, only the client's tool is listed. A
 * new reference; NULL: none. */
json_t *odo_tools_offered(const struct odo_run *r, const struct odo_round *round);
/* Reports, once per run, tools that are withheld because untrusted text was read, and which of them the user could
 * allow. */
void odo_tools_withheld(struct odo_run *r, const struct odo_round *round);
/* Runs the calls [{"id", "name", "arguments"}] and appends their results to the round's messages. */
int odo_tools_run(struct odo_run *r, const struct odo_round *round, const json_t *calls);

#endif
