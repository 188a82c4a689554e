/* reader.h: pieces of large files, read by threads of its own, past the page cache if the file system can.
 *
 * The caller owns its pieces and keeps them until they are done. A piece is read into the thread's buffer
 * and given to `use` there; any number may wait in line, and as many as there are threads are read at once.
 * A file is held open: one that is renamed over stays readable. If it was written to or cut since it was
 * added, every later piece of it fails, so that no bytes of two files are mixed. One thread posts and waits. */
#ifndef CHIMERE_BASE_READER_H
#define CHIMERE_BASE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct reader_piece {
    uint32_t file; /* as reader_add numbers them */
    uint64_t offset;
    size_t n;
    /* On a thread of the reader; bytes are valid during the call. A result below 0 fails the piece, with
     * its reason in err. Not called if the bytes could not be read. */
    int (*use)(struct reader_piece *p, const unsigned char *bytes);
    void *ud;

    /* results, valid when done */
    struct err err; /* code 0: done */

    struct reader_piece *next; /* the reader's own */
    bool is_done;
};

struct reader;
struct reader_stats {
    uint64_t n_piece, n_bytes;
    int64_t busy_ns; /* with at least one piece not done */
    bool is_direct;  /* all files are read past the page cache */
};

/* Pieces have at most max_bytes. n_thread >= 1. */
int reader_new(struct reader **out, int n_thread, size_t max_bytes, struct err *e);
void reader_free(struct reader *r); /* no piece may be under way */
/* Files are numbered from 0 in the order in which they are added. n_bytes: its size as the caller saw it;
 * CHIMERE_EIO if it differs. */
int reader_add(struct reader *r, const char *path, uint64_t n_bytes, struct err *e);
void reader_post(struct reader *r, struct reader_piece *p);
bool reader_is_done(struct reader *r, const struct reader_piece *p);
void reader_wait(struct reader *r, const struct reader_piece *p);
void reader_stats(struct reader *r, struct reader_stats *out);
/* Memory that reader_new takes. */
size_t reader_bytes(int n_thread, size_t max_bytes);

/* Test hook: the nth next read of the process fails (1: the next) with this errno, or ends early (0). nth 0
 * switches it off. */
void reader_fail_nth(int64_t nth, int error);

#endif
