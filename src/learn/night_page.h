/* night_page.h: shows what a night did as one HTML page: no scripts, no network requests, light and dark. */
#ifndef CHIMERE_LEARN_NIGHT_PAGE_H
#define CHIMERE_LEARN_NIGHT_PAGE_H

#include "base/buf.h"
#include "learn/nights.h"

/* Appends the page of a night to out: what the night read, the gain of each step with its interval, the general
 * suites before and after, and the gains over all nights. CHIMERE_ENOENT: no such night. */
int night_page(struct buf *out, const struct nights *n, int64_t night, struct err *e);
/* Writes the energy of a night's record, and the money that it cost if the record has a price; "": not measured. */
void night_energy_text(const json_t *record, char *out, size_t n);
/* Writes how many answers the judges scored, how they agree with users, and why one is not used; "" without one. n is at
 * least 1024. */
void night_judge_text(const json_t *record, char *out, size_t n);
/* Writes how the ratings were judged if they look like an attack; "": they do not. */
void night_hostile_text(const json_t *record, char *out, size_t n);
/* Writes what happened to the drafter with weights that the server uses; "": it uses none. */
void night_drafter_text(const json_t *record, char *out, size_t n);

#endif
