/* cmd_embed.c: converts lines of standard input to vectors, one JSON object per line. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/args/model_args.h"
#include "backend/embed/embed.h"
#include "model/vocab.h"

const struct cfg_opt embed_options[] = {
    MODEL_OPTIONS,
    {"ctx", 'c', CFG_INT, "N", "0", 0, 1 << 20, NULL,
     "maximum number of tokens of a text, longer ones are cut; 0: the model's own, at most 2048"},
    {"normalise", 0, CFG_BOOL, NULL, "true", 0, 0, NULL,
     "scale vectors to length 1; --no-normalise"},
    {0}};

enum { MAX_LINE = 16 << 20 };

static int print_vector(const float *x, int32_t n, int64_t index, int32_t n_tok, bool cut,
                        struct err *e) {
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    buf_printf(&b, "{\"index\": %lld, \"n_tokens\": %d, \"cut\": %s, \"embedding\": [",
               (long long)index, n_tok, cut ? "true" : "false");
    for (int32_t i = 0; i < n; i++) buf_printf(&b, i ? ", %.9g" : "%.9g", (double)x[i]);
    buf_puts(&b, "]}\n");
    int rc = 0;
    if (b.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (fwrite(b.p, 1, b.n, stdout) != b.n || fflush(stdout) != 0)
        rc = err_set(e, CHIMERE_EIO, "standard output: cannot write");
    buf_fini(&b);
    return rc;
}

/* Reads the next line without its line end; false at the end. */
static bool next_line(struct buf *line) {
    buf_clear(line);
    int ch = getchar();
    if (ch == EOF) return false;
    for (; ch != EOF && ch != '\n'; ch = getchar()) buf_putc(line, (char)ch);
    if (line->n && line->p[line->n - 1] == '\r') buf_cut(line, line->n - 1);
    return true;
}

static int embed_lines(struct embed *s, bool normalise, struct err *e) {
    float *x = mem_alloc_array((size_t)embed_size(s), sizeof *x);
    struct buf line;
    int rc = x ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&line, MAX_LINE);
    for (int64_t i = 0; !rc && next_line(&line); i++) {
        int32_t n_tok;
        bool cut;
        if (line.failed) rc = err_set(e, line.failed, "expected at most %d bytes", MAX_LINE);
        if (!rc) rc = embed_text(s, line.n ? line.p : "", line.n, normalise, x, &n_tok, &cut, e);
        if (rc) err_prefix(e, "line %lld", (long long)i + 1);
        else rc = print_vector(x, embed_size(s), i, n_tok, cut, e);
    }
    buf_fini(&line);
    mem_free(x);
    return rc;
}

int cmd_embed(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, embed_options,
                   "usage: chimere embed [-m FILE] [--no-normalise] < LINES\n"
                   "Prints a JSON object with the vector of each line of standard input. With\n"
                   "--device auto, it runs on the processor.",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    struct dev *dev = NULL;
    struct model *m = NULL;
    struct tok *tok = NULL;
    struct embed *s = NULL;
    int rc = model_args_open(c, &dev, &m, &e);
    if (!rc) {
        rc = vocab_load(&tok, m->gguf, &e);
        if (!rc) rc = embed_open(&s, m, tok, (int32_t)cfg_int(c, "ctx"), &e);
        if (!rc) rc = embed_lines(s, cfg_bool(c, "normalise"), &e);
        embed_close(s);
        tok_free(tok);
        model_close(m);
        dev->ops->close(dev);
    }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
