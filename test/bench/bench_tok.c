/* bench_tok.c: million bytes a second that one thread tokenizes, per vocabulary and kind of text.
 *
 * Inside the window: tok_encode alone, best of repeated calls within a second, on 2 MB of English (the
 * project's own documents, repeated), of C (its sources), and of random characters from all of Unicode.
 * Then seconds for 10 MB of one letter. Unpacks the test vocabularies with xz. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/vocab.h"

enum { N_TEXT = 2000000, N_RUN = 10000000 };

static struct tok *load(const char *name) {
    char command[512];
    snprintf(command, sizeof command, "xz -dc '%s/vocab/ggml-vocab-%s.gguf.xz'", TEST_DATA, name);
    FILE *f = popen(command, "r");
    struct buf b;
    static char chunk[1 << 16];
    buf_init(&b, 1 << 26);
    for (size_t k; f && (k = fread(chunk, 1, sizeof chunk, f)) > 0;) buf_put(&b, chunk, k);
    struct gguf *g = NULL;
    struct tok *t = NULL;
    struct err e = {0};
    if (!f || pclose(f) != 0) err_set(&e, CHIMERE_EIO, "xz cannot unpack %s", name);
    else if (gguf_open_memory(&g, b.p, b.n, name, &e) == 0) vocab_load(&t, g, &e);
    if (!t) fprintf(stderr, "%s\n", e.text);
    gguf_close(g);
    buf_fini(&b);
    return t;
}

/* N_TEXT bytes of these files, again and again. */
static char *repeat(const char *const *files) {
    struct buf b;
    buf_init(&b, 4 * N_TEXT);
    for (size_t i = 0; b.n < N_TEXT; i++) {
        if (!files[i]) i = 0;
        char path[512], *s;
        size_t n;
        struct err e = {0};
        snprintf(path, sizeof path, "%s/../../%s", TEST_DATA, files[i]);
        if (file_read(path, N_TEXT, &s, &n, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return NULL;
        }
        buf_put(&b, s, n);
        mem_free(s);
    }
    return buf_take(&b);
}

static char *random_text(void) {
    struct rng r;
    rng_seed(&r, 1);
    struct buf b;
    buf_init(&b, 2 * N_TEXT);
    while (b.n < N_TEXT) {
        char s[4];
        buf_put(
            &b, s,
            (size_t)utf8_encode((uint32_t)rng_below(&r, rng_below(&r, 4) ? 0x3000 : 0x20000), s));
    }
    return buf_take(&b);
}

/* MB a second, best of the calls of one second. */
static double rate(const struct tok *t, const char *text, size_t n) {
    double best = 0;
    int64_t begin = clock_ns();
    do {
        int32_t *ids;
        size_t n_ids;
        int64_t start = clock_ns();
        if (tok_encode(t, text, n, false, false, &ids, &n_ids, NULL)) return 0;
        double r = (double)n * 1e3 / (double)(clock_ns() - start + 1);
        best = r > best ? r : best;
        mem_free(ids);
    } while (clock_ns() - begin < 1000000000);
    return best;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"gpt-2", "llama-bpe", "qwen2", "llama-spm", "bert-bge"};
    static const char *const english[] = {"LICENSE", "README.md", "ARCHITECTURE.md",
                                          "CONTRIBUTING.md", NULL};
    static const char *const code[] = {"src/text/tok/tok.c", "src/text/tok/tok_merge.c",
                                       "src/model/vocab.c", "src/base/config.c", NULL};
    char *texts[] = {repeat(english), repeat(code), random_text()};
    char *run = mem_alloc(N_RUN);
    if (!texts[0] || !texts[1] || !texts[2] || !run) return 1;
    memset(run, 'a', N_RUN);
    printf("%-12s %10s %10s %10s %14s\n", "vocabulary", "english", "code", "random",
           "10 MB of 'a'");
    printf("%-12s %10s %10s %10s %14s\n", "", "MB/s", "MB/s", "MB/s", "s");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool wanted = argc < 2;
        for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], names[i]) == 0;
        struct tok *t = wanted ? load(names[i]) : NULL;
        if (!wanted) continue;
        if (!t) return 1;
        printf("%-12s", names[i]);
        for (int k = 0; k < 3; k++) printf(" %10.1f", rate(t, texts[k], N_TEXT));
        printf(" %14.2f\n", N_RUN * 1e-6 / rate(t, run, N_RUN));
        fflush(stdout);
        tok_free(t);
    }
    for (int k = 0; k < 3; k++) mem_free(texts[k]);
    mem_free(run);
    return 0;
}
