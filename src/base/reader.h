/* reader.h: reads pieces of large files, bypassing the page cache if the file system supports it.
 *
 * The caller owns its pieces and keeps them until they are done. Reads are queued in the kernel (io_uring), or if the
 * system refuses that, each thread of the reader reads one piece at a time. Then a thread of the reader, or one that
 * waits for a piece, passes the bytes to `use`. Any number of pieces may be queued. Files stay open, so a file that is
 * replaced by rename stays readable. If a file was written to or truncated since it was added, all later pieces of it
 * fail, so that bytes of two versions are never mixed. One thread posts; any thread may wait. */
#ifndef CHIMERE_BASE_READER_H
#define CHIMERE_BASE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Alignment of offsets, sizes and addresses of direct reads: the largest sector size of disks. */
enum { READER_SECTOR = 4096 };

struct reader_piece {
    uint32_t file; /* number from reader_add */
    uint64_t offset;
    size_t n;
    /* Called on a thread of the reader or in reader_wait; bytes are valid during the call. A negative result fails the piece, with the
     * reason in err. Not called if reading failed. */
    int (*use)(struct reader_piece *p, const unsigned char *bytes);
    void *ud;
    /* NULL, or where to read to: a multiple of READER_SECTOR, as offset, with room for n rounded up to one. `use` gets it too. */
    unsigned char *to;

    /* results, valid when done */
    struct err err; /* code 0: done */

    struct reader_piece *next; /* private to the reader */
    bool is_done;
};

struct reader;
struct reader_stats {
    uint64_t n_piece, n_bytes;
    int64_t busy_ns; /* time with at least one piece not done */
    bool is_direct;  /* all files bypass the page cache */
    bool is_uring;   /* the kernel has the queue of reads */
};

/* Pieces have at most max_bytes bytes. */
int reader_new(struct reader **out, size_t max_bytes, struct err *e);
void reader_free(struct reader *r); /* all pieces must be done */
/* Adds a file; numbers start at 0 in the order of addition. n_bytes: the size that the caller has seen; CHIMERE_EIO if
 * it differs. */
int reader_add(struct reader *r, const char *path, uint64_t n_bytes, struct err *e);
void reader_post(struct reader *r, struct reader_piece *p);
/* Call after posting pieces if no thread will wait for them soon: the reader's threads use them. */
void reader_run(struct reader *r);
bool reader_is_done(struct reader *r, const struct reader_piece *p);
void reader_wait(struct reader *r, const struct reader_piece *p);
void reader_stats(struct reader *r, struct reader_stats *out);
/* Memory that reader_new allocates. */
size_t reader_bytes(size_t max_bytes);

/* Test hook: the nth next read of the process fails with this errno (1: the next), or ends early if error is 0. nth 0
 * disables it. */
void reader_fail_nth(int64_t nth, int error);

#endif
