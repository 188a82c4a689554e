/* seq_lend.h: pages that no sequence uses hold experts of the same model.
 *
 * The pages are divided into parts. A part of which no page is in use holds experts (experts_lend.h). When a sequence takes one of its
 * pages, the experts are dropped and the part is cleared, in order with the ops of a step: no step waits. When all pages
 * of a part are free again, the next step lends it. Pages are taken in ascending order, so that few parts are in use.
 * Belongs to the engine's thread. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_LEND_H
#define CHIMERE_MODEL_SEQ_SEQ_LEND_H

#include "model/seq/seq_impl.h"

/* Before the arrays are allocated: those of experts on disk are in one block with the experts. */
void seq_lend_reserve(struct seq_pool *p);
void *seq_lend_alloc(struct seq_pool *p, size_t n);
void seq_lend_free(struct seq_pool *p, void *at);
/* Lends nothing if all experts are in memory. */
int seq_lend_open(struct seq_pool *p, struct err *e);
void seq_lend_close(struct seq_pool *p);              /* after seq_lend_free */
void seq_lend_take(struct seq_pool *p, int32_t page); /* a page that is in use from now on */
void seq_lend_drop(struct seq_pool *p, int32_t page); /* one that no longer is */
void seq_lend_idle(struct seq_pool *p);               /* lends parts that are not in use */

#endif
