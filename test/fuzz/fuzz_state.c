/* Files of saved sequences. The first byte says what is mended, so that what lies behind checksums is reached:
 * 1 all fields that name the model and its layout, 2 the header's checksum, 4 the content's.
 *
 * What loads holds what the file says: its own bytes can be read, its position fits the pool, a sequence
 * continues from it, and everything it took is given back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "model/seq/checkpoint.h"
#include "model/seq/seq_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 80, N_CTX = 4 * KV_PAGE, HASH = 77 };

/* One layer of attention and one that is recurrent, without weights. */
static struct seq_pool *pool_once(void) {
    static struct model m;
    static struct seq_pool *pool;
    if (pool) return pool;
    m.hash = HASH;
    m.hp = (struct hparams){.n_layer = 2, .n_embd = 8, .n_vocab = 10, .d_k = 4, .d_v = 4};
    m.hp.layer[0].mixer = MIX_ATTN;
    m.hp.layer[0].n_kv_head = 1;
    m.hp.layer[1].mixer = MIX_GDN;
    m.hp.gdn.n_k_head = m.hp.gdn.n_v_head = 1;
    m.hp.gdn.d_k = m.hp.gdn.d_v = 4;
    m.hp.gdn.d_conv = 4;
    const struct seq_pool_params p = {.n_slot = 2,
                                      .n_ctx = N_CTX,
                                      .n_ctx_seq = N_CTX,
                                      .k_type = QUANT_F16,
                                      .v_type = QUANT_F16,
                                      .log = true};
    if (cpu_open(&m.dev, 1, CPU_ISA_SCALAR, NULL) || seq_pool_new(&pool, &m, &p, NULL)) abort();
    return pool;
}

static void put64(uint8_t *to, uint64_t v) { memcpy(to, &v, 8); }
static void put32(uint8_t *to, uint32_t v) { memcpy(to, &v, 4); }

static void mend(const struct seq_pool *p, uint8_t *file, size_t n, unsigned what) {
    if (n < HEADER) return;
    if (what & 1) {
        memcpy(file, "CHIMSEQ", 8);
        put32(file + 8, 1);
        put64(file + 16, HASH);
        put32(file + 24, QUANT_F16);
        put32(file + 28, QUANT_F16);
        put32(file + 44, STEP_MAX_TOK);
        put64(file + 48, p->rec_bytes);
        put64(file + 56, seq_page_bytes(p));
    }
    if (what & 4) put32(file + 72, hash_crc32c(0, file + HEADER, n - HEADER));
    if (what & 2) put32(file + 12, hash_crc32c(0, file + 16, HEADER - 16));
}

static void use(struct seq_pool *p, struct checkpoint *m, const unsigned char *extra,
                size_t n_extra) {
    unsigned sum = 0;
    struct seq *s;
    for (size_t i = 0; i < n_extra; i++) sum += extra[i];
    if (sum > 255 * n_extra || checkpoint_pos(m) < 0 || checkpoint_pos(m) > N_CTX) abort();
    if (checkpoint_n_pooled(m) || seq_from_checkpoint(p, m, &s, NULL)) abort();
    if (seq_pos(s) != checkpoint_pos(m)) abort();
    seq_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct seq_pool *p = pool_once();
    if (!size) return 0;
    int64_t free_ctx = seq_pool_free_ctx(p);
    size_t n = size - 1;
    uint8_t *file = malloc(n + 1);
    char path[40];
    int fd = memfd_create("state", MFD_CLOEXEC);
    if (!file || fd < 0) abort();
    memcpy(file, data + 1, n);
    mend(p, file, n, data[0]);
    if (write(fd, file, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct checkpoint *m;
    void *extra;
    size_t n_extra;
    struct err e = {0};
    int rc = checkpoint_load(p, path, &m, &extra, &n_extra, &e);
    if (rc) {
        if (!e.text[0] || m || extra) abort();
    } else {
        use(p, m, extra, n_extra);
    }
    mem_free(extra);
    checkpoint_free(m);
    close(fd);
    free(file);
    if (seq_pool_free_ctx(p) != free_ctx || checkpoint_host_bytes(p)) abort();
    return 0;
}
