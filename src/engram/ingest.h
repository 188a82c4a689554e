/* ingest.h: converts files and folders of text to documents of a table.
 *
 * A text file is one document, or several if lines that contain only <|doc|> separate them. Very long documents
 * are cut at a line end. A .jsonl file has one document per line: its "text", or its question and answer ("q" and
 * "a", or "question" and "answer"). Files with zero bytes are not text and are skipped. Memory is bounded for
 * files of any size. */
#ifndef CHIMERE_ENGRAM_INGEST_H
#define CHIMERE_ENGRAM_INGEST_H

#include "engram/build.h"
#include "text/tok/tok.h"

enum { ENGRAM_MAX_PIECE = 1 << 20 }; /* bytes that are tokenized at once */

struct engram_ingest {
    struct engram_builder *b; /* borrowed; NULL: documents are passed to take */
    int (*take)(void *ud, const int32_t *ids, size_t n, struct err *e);
    const struct tok *tok; /* borrowed */
    uint64_t n_bytes, n_doc, n_file, n_skipped;
    void (*progress)(void *ud, uint64_t n_bytes); /* may be NULL */
    void *ud;                                     /* passed to take and progress */
};

/* source: its name in the table; time: of its documents, 0: the file's modification time. */
int engram_ingest_file(struct engram_ingest *in, const char *path, struct slice source,
                       int64_t time, struct err *e);

/* Lists the regular files below a folder, or the file itself. Paths are sorted by their bytes; hidden files are
 * left out. Free each path and the array with mem_free, or everything with engram_files_free. */
int engram_files(const char *path, char ***files, size_t *n, struct err *e);
void engram_files_free(char **files, size_t n);

struct engram_sync {
    void (*progress)(void *ud, uint64_t n_bytes); /* n_bytes: text read so far; may be NULL */
    void *ud;
    size_t n_kept, n_new, n_changed, n_removed; /* numbers of files */
    uint64_t n_doc,
        n_doc_sorted; /* all documents, and the ones that were sorted; the others were merged */
    bool is_written;  /* false: nothing changed, so the table was not written */
};
/* Updates the table at path to the current content of the folder dir. Unchanged files keep their tokens and time
 * stamps, and the weights of the mixture stay. p: as for a build. */
int engram_sync_folder(const char *path, const char *dir, const struct tok *tok,
                       const struct engram_build_params *p, struct engram_sync *out, struct err *e);

#endif
