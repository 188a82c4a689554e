#include "engine/draft/suffix.h"

#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/hash.h"
#include "base/mem.h"

static const int32_t orders[SUFFIX_N_ORDER] = {1, 2, 3, 5, 8, 13};
enum { MAX_COUNT = 60000, N_ENTRY = 1 << 18, VERSION = 1 };

struct entry {
    uint32_t key; /* 0: empty */
    int32_t tokens[2];
    uint16_t counts[2];
    uint16_t total;
    uint16_t pad;
};
_Static_assert(sizeof(struct entry) == 20 && N_ENTRY * 20 <= SUFFIX_BYTES,
               "the size that plans count");

struct suffix {
    struct entry *entries; /* owned [N_ENTRY] */
};

struct head { /* header of a file */
    char magic[8];
    uint32_t version, n_entry;
    uint64_t layout;
    uint32_t crc, pad; /* crc: of the entries */
};
static const char magic[8] = "CHSUFFIX";

int suffix_new(struct suffix **out, struct err *e) {
    struct suffix *x = *out = mem_zalloc(sizeof *x);
    if (x && (x->entries = mem_alloc_array(N_ENTRY, sizeof *x->entries))) return 0;
    mem_free(x);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void suffix_free(struct suffix *x) {
    if (!x) return;
    mem_free(x->entries);
    mem_free(x);
}

/* Hashes the contexts that end before text[n], shortest first; returns their number. */
static int hash_contexts(uint64_t salt, const int32_t *text, int32_t n, uint64_t *hashes) {
    uint64_t h = hash_mix(salt + 1);
    int k = 0;
    for (int32_t i = 1; i <= n && k < SUFFIX_N_ORDER; i++) {
        h = (h + (uint32_t)text[n - i] + 1) * 6364136223846793005ULL;
        if (i == orders[k]) hashes[k++] = hash_mix(h + (uint64_t)i);
    }
    return k;
}

static uint32_t key_of(uint64_t hash) {
    uint32_t key = (uint32_t)(hash >> 32);
    return key ? key : 1;
}

static void count(struct entry *x, int32_t token) {
    if (x->total == MAX_COUNT) {
        x->total /= 2;
        for (int i = 0; i < 2; i++) x->counts[i] /= 2;
    }
    x->total++;
    int which = x->tokens[0] == token && x->counts[0] ? 0 : 1;
    /* a third token: it replaces the second one only after several misses */
    if (which && x->counts[1] && x->tokens[1] != token) {
        if (--x->counts[1]) return;
    }
    if (which && (!x->counts[1] || x->tokens[1] != token)) {
        x->tokens[1] = token;
        x->counts[1] = 0;
    }
    x->counts[which]++;
    /* if both occurred equally often, the more recent one comes first */
    if (x->counts[1] >= x->counts[0]) {
        int32_t t = x->tokens[0];
        uint16_t c = x->counts[0];
        x->tokens[0] = x->tokens[1], x->counts[0] = x->counts[1];
        x->tokens[1] = t, x->counts[1] = c;
    }
}

void suffix_learn(struct suffix *x, uint64_t salt, const int32_t *text, int32_t n) {
    uint64_t hashes[SUFFIX_N_ORDER];
    if (n < 2) return;
    int n_hash = hash_contexts(salt, text, n - 1, hashes);
    for (int k = 0; k < n_hash; k++) {
        struct entry *e = &x->entries[hashes[k] & (N_ENTRY - 1)];
        if (e->key != key_of(hashes[k])) {
            /* an entry is halved per miss, so that frequent ones survive several misses */
            if (e->total > 1) {
                e->total /= 2;
                for (int i = 0; i < 2; i++) e->counts[i] /= 2;
                if (e->total > 1) continue;
            }
            *e = (struct entry){.key = key_of(hashes[k])};
        }
        count(e, text[n - 1]);
    }
}

bool suffix_next(const struct suffix *x, uint64_t salt, const int32_t *text, int32_t n,
                 struct suffix_next *out) {
    uint64_t hashes[SUFFIX_N_ORDER];
    int n_hash = hash_contexts(salt, text, n, hashes);
    for (int k = n_hash - 1; k >= 0; k--) {
        const struct entry *e = &x->entries[hashes[k] & (N_ENTRY - 1)];
        if (e->key != key_of(hashes[k]) || !e->counts[0]) continue;
        *out = (struct suffix_next){
            .token = e->tokens[0], .order = k, .share = (float)e->counts[0] / (float)e->total};
        return true;
    }
    return false;
}

int suffix_save(const struct suffix *x, const char *path, uint64_t layout, struct err *e) {
    struct file_writer w;
    struct head h = {.version = VERSION, .n_entry = N_ENTRY, .layout = layout};
    memcpy(h.magic, magic, sizeof magic);
    h.crc = hash_crc32c(0, x->entries, N_ENTRY * sizeof *x->entries);
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    fs_make_private(w.f); /* it holds what users wrote */
    if (fwrite(&h, sizeof h, 1, w.f) == 1 &&
        fwrite(x->entries, sizeof *x->entries, N_ENTRY, w.f) == N_ENTRY)
        return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return err_set(e, CHIMERE_EIO, "%s: cannot write", path);
}

int suffix_load(struct suffix *x, const char *path, uint64_t layout, struct err *e) {
    struct file_map m;
    struct head h;
    const size_t n = N_ENTRY * sizeof *x->entries;
    int rc = file_map(&m, path, e);
    if (rc) return rc;
    memset(&h, 0, sizeof h);
    if (m.size == sizeof h + n) memcpy(&h, m.data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != VERSION || h.n_entry != N_ENTRY)
        rc = err_set(e, CHIMERE_EFORMAT, "%s: is no store of suffixes", path);
    else if (h.layout != layout)
        rc = err_set(e, CHIMERE_EMISMATCH, "%s: belongs to another model", path);
    else if (hash_crc32c(0, m.data + sizeof h, n) != h.crc)
        rc = err_set(e, CHIMERE_ECHECKSUM, "%s: damaged", path);
    else memcpy(x->entries, m.data + sizeof h, n);
    file_unmap(&m);
    return rc;
}
