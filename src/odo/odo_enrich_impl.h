/* odo_enrich_impl.h: retrieval that runs before the model answers. */
#ifndef CHIMERE_ODO_ODO_ENRICH_IMPL_H
#define CHIMERE_ODO_ODO_ENRICH_IMPL_H

#include "odo/odo_impl.h"

enum { ODO_N_HIT = 5 /* passages of documents that a prompt may show */ };

/* odo_enrich.c: fills sources and source_text, and adds what was done to the record. */
void odo_enrich(struct odo_run *r);
int32_t odo_count_tokens(const struct odo_run *r, const char *text, size_t n);

/* odo_shots.c: examples for few-shot prompting. find fills r->shots and may run on any thread; choose keeps the
 * examples that fit the budget; place inserts them before the last user message. */
int odo_find_shots(struct odo_run *r, json_t *said, struct err *e);
void odo_choose_shots(struct odo_run *r);
int odo_place_shots(struct odo_run *r);

/* Puts the sources around the question, in the last user message. */
int odo_place_sources(struct odo_run *r);

#endif
