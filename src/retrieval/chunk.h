/* chunk.h: splits a text into chunks of similar size, each with its position and its heading.
 *
 * Cuts are between paragraphs, else between sentences, else between words; never inside a character. The chunks
 * together cover every byte that is not blank, in order and without overlap. Does not allocate. Any thread. */
#ifndef CHIMERE_RETRIEVAL_CHUNK_H
#define CHIMERE_RETRIEVAL_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHUNK_TARGET = 1200, CHUNK_MOST = 1600 }; /* bytes */

struct chunk {
    int32_t from, to;           /* byte range in the text */
    int32_t line;               /* line number of `from`, starting at 1 */
    int32_t heading, n_heading; /* position and length of the current heading; length 0: none */
};

struct chunk_cursor {
    const char *text; /* view; must end with a NUL */
    size_t n, at;
    int32_t line, heading, n_heading;
};

void chunk_begin(struct chunk_cursor *c, const char *text, size_t n);
bool chunk_next(struct chunk_cursor *c, struct chunk *out);

#endif
