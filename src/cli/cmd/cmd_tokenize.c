/* cmd_tokenize.c: writes the token ids of standard input, taken unchanged, on one line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/args/model_args.h"
#include "model/vocab.h"

/* clang-format off */
const struct cfg_opt tokenize_options[] = {
    {"model", 'm', CFG_STR, "FILE", NULL, 0, 0, NULL, "model file (default: the model that ships with chimere)"},
    {"special", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "parse control tokens in the text"},
    {"bos", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "add the model's tokens for the start and the end of a text"},
    {0}};
/* clang-format on */

enum { MAX_INPUT = 1 << 30 };

static int print_ids(const int32_t *ids, size_t n, struct err *e) {
    for (size_t i = 0; i < n; i++) printf(i ? " %d" : "%d", ids[i]);
    putchar('\n');
    if (fflush(stdout) || ferror(stdout))
        return err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    return 0;
}

int cmd_tokenize(int argc, char **argv) {
    struct cfg *c;
    struct err e = {0};
    int status;
    if (!cli_parse(
            &c, tokenize_options,
            "usage: chimere tokenize [-m FILE] [--special] [--bos] [TEXT]\n\n"
            "Prints the token ids of TEXT, or of standard input, taken verbatim, on one line.",
            argc, argv, &status))
        return status;
    char path[4096], *text = NULL;
    struct gguf *g = NULL;
    struct tok *t = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    const char *given = cfg_pos(c, 0); /* NULL: standard input */
    int rc = cfg_n_pos(c) > 1
                 ? err_set(&e, CHIMERE_EINVAL, "tokenize: expected one TEXT, got %d arguments",
                           cfg_n_pos(c))
                 : model_args_path(c, path, sizeof path, &e);
    if (!rc) rc = gguf_open(&g, path, &e);
    if (!rc) rc = vocab_load(&t, g, &e);
    if (!rc && !given) rc = file_read("-", MAX_INPUT, &text, &n, &e);
    if (!rc)
        rc = tok_encode(t, given ? given : text, given ? strlen(given) : n, cfg_bool(c, "special"),
                        cfg_bool(c, "bos"), &ids, &n_ids, &e);
    if (!rc) rc = print_ids(ids, n_ids, &e);
    mem_free(ids);
    mem_free(text);
    tok_free(t);
    gguf_close(g);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
