/* ingest.h: files and folders of text -> documents of a table.
 *
 * A text file is one document, or several where lines hold nothing but <|doc|>; very long documents are
 * cut at a line's end. A .jsonl file has one document a line: its "text", or its question and answer
 * ("q" and "a", "question" and "answer"). Files that hold zero bytes are no text and are passed over.
 * Memory is bounded whatever the file's size. */
#ifndef CHIMERE_ENGRAM_INGEST_H
#define CHIMERE_ENGRAM_INGEST_H

#include "engram/build.h"
#include "text/tok/tok.h"

enum { ENGRAM_MAX_PIECE = 1 << 20 }; /* bytes that are tokenised at once */

struct engram_ingest {
    struct engram_builder *b; /* borrowed; NULL: documents go to take */
    int (*take)(void *ud, const int32_t *ids, size_t n, struct err *e);
    const struct tok *tok; /* borrowed */
    uint64_t n_bytes, n_doc, n_file, n_skipped;
    void (*progress)(void *ud, uint64_t n_bytes); /* may be NULL */
    void *ud;                                     /* of take and progress */
};

/* source: its name in the table; time: of its documents, 0: the file's last change. */
int engram_ingest_file(struct engram_ingest *in, const char *path, struct slice source,
                       int64_t time, struct err *e);

/* The regular files below a folder, or the file itself: paths in the order of their bytes, hidden ones left
 * out. Each path and the array by mem_free, or all by engram_files_free. */
int engram_files(const char *path, char ***files, size_t *n, struct err *e);
void engram_files_free(char **files, size_t n);

struct engram_sync {
    void (*progress)(void *ud, uint64_t n_bytes); /* in: text read so far; may be NULL */
    void *ud;
    size_t n_kept, n_new, n_changed, n_removed; /* files */
    uint64_t n_doc,
        n_doc_sorted; /* documents, and those that were sorted; the others were merged */
    bool is_written;  /* false: nothing had changed */
};
/* Makes the table at path hold what is in the folder dir now: files that did not change keep their tokens
 * and time stamps, and the mixture's weights stay. p: as for a build. */
int engram_sync_folder(const char *path, const char *dir, const struct tok *tok,
                       const struct engram_build_params *p, struct engram_sync *out, struct err *e);

#endif
