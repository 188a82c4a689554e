#include "engram/transient.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/os/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engram/build.h"

static int add(struct engram_builder *b, struct slice text, const struct tok *tok, bool *any,
               struct err *e) {
    int32_t *ids = NULL;
    size_t n = 0;
    uint32_t source;
    int rc = tok_encode(tok, text.p, text.n, false, false, &ids, &n, e);
    if (!rc && n) {
        rc = engram_builder_source(b, (struct slice){"fetched", 7}, 0, &source, e);
        if (n > ENGRAM_MAX_DOC) n = ENGRAM_MAX_DOC;
        if (!rc) rc = engram_builder_doc(b, ids, n, source, time(NULL), ENGRAM_UNIT, e);
        *any = true;
    }
    mem_free(ids);
    return rc;
}

int engram_transient_new(struct engram_table **out, const struct slice *texts, size_t n,
                         const struct tok *tok, struct err *e) {
    *out = NULL;
    char dir[] = P_tmpdir "/chimere-engram.XXXXXX", path[sizeof dir + 2];
    const struct engram_build_params p = {
        .tok_hash = tok_hash(tok), .n_vocab = (uint32_t)tok_n_vocab(tok), .memory_bytes = 8 << 20};
    struct engram_builder *b = NULL;
    if (!mkdtemp(dir)) return err_set(e, CHIMERE_EIO, P_tmpdir ": cannot make a folder");
    snprintf(path, sizeof path, "%s/t", dir);
    size_t left = ENGRAM_TRANSIENT_BYTES;
    bool any = false;
    int rc = engram_builder_new(&b, path, &p, e);
    for (size_t i = 0; i < n && !rc; ++i) {
        if (texts[i].n > left) continue;
        left -= texts[i].n;
        rc = add(b, texts[i], tok, &any, e);
    }
    if (b && !rc && any) {
        rc = engram_builder_finish(b, e);
        if (!rc) rc = engram_table_open(out, path, p.tok_hash, p.n_vocab, e);
    } else if (b) {
        engram_builder_abort(b);
    }
    fs_remove(path);
    fs_remove_folder(dir);
    return rc;
}
