/* chunk.h: a text -> pieces of about one size, each with its place and its heading.
 *
 * Cuts fall between paragraphs, else sentences, else words; never inside a character. Pieces together
 * cover every byte that is not blank, in order, without overlap. No allocation. Any thread. */
#ifndef CHIMERE_RETRIEVAL_CHUNK_H
#define CHIMERE_RETRIEVAL_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHUNK_TARGET = 1200, CHUNK_MOST = 1600 }; /* bytes */

struct chunk {
    int32_t from, to;           /* bytes of the text */
    int32_t line;               /* of `from`, from 1 */
    int32_t heading, n_heading; /* the heading in force: its place and length; 0 bytes: none */
};

struct chunk_cursor {
    const char *text; /* view, with a NUL behind */
    size_t n, at;
    int32_t line, heading, n_heading;
};

void chunk_begin(struct chunk_cursor *c, const char *text, size_t n);
bool chunk_next(struct chunk_cursor *c, struct chunk *out);

#endif
