/* cmd_detokenize.c: writes the bytes of token ids read from standard input. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/args/model_args.h"
#include "model/vocab.h"

/* clang-format off */
const struct cfg_opt detokenize_options[] = {
    {"model", 'm', CFG_STR, "FILE", NULL, 0, 0, NULL, "model file (default: the model that ships with chimere)"},
    {"special", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "write control tokens as text (--no-special: leave them out)"},
    {0}};
/* clang-format on */

enum { MAX_INPUT = 1 << 30 };

/* Writes the tokens of text[0..n), whose ids are separated by white space or commas. Bytes are not changed, so
 * text that was not UTF-8 before tokenizing is restored. */
static int write_tokens(const struct tok *t, char *text, bool special, struct err *e) {
    static const char separators[] = " \t\r\n,";
    struct tok_stream s;
    tok_stream_init(&s, t, special);
    for (char *p = text + strspn(text, separators); *p; p += strspn(p, separators)) {
        size_t n = strcspn(p, separators);
        char after = p[n];
        int64_t id;
        p[n] = 0;
        if (!str_to_i64(p, 0, (int64_t)tok_n_vocab(t) - 1, &id))
            return err_set(e, CHIMERE_EINVAL,
                           "standard input: expected token ids below %u, got '%.40s'",
                           tok_n_vocab(t), p);
        p[n] = after;
        p += n;
        struct slice b = tok_stream_bytes(&s, (int32_t)id);
        fwrite(b.p, 1, b.n, stdout);
    }
    if (fflush(stdout) || ferror(stdout))
        return err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    return 0;
}

int cmd_detokenize(int argc, char **argv) {
    struct cfg *c;
    struct err e = {0};
    int status;
    if (!cli_parse(&c, detokenize_options,
                   "usage: chimere detokenize [-m FILE] [--no-special] < IDS\n\n"
                   "Writes the text of the token ids on standard input, and nothing else.",
                   argc, argv, &status))
        return status;
    char path[4096], *text = NULL;
    struct gguf *g = NULL;
    struct tok *t = NULL;
    size_t n = 0;
    int rc = cfg_n_pos(c) ? err_set(&e, CHIMERE_EINVAL,
                                    "detokenize: unexpected argument '%s'; the ids are read from "
                                    "standard input",
                                    cfg_pos(c, 0))
                          : model_args_path(c, path, sizeof path, &e);
    if (!rc) rc = gguf_open(&g, path, &e);
    if (!rc) rc = vocab_load(&t, g, &e);
    if (!rc) rc = file_read("-", MAX_INPUT, &text, &n, &e);
    if (!rc && strlen(text) != n)
        rc = err_set(&e, CHIMERE_EINVAL, "standard input: unexpected NUL byte");
    if (!rc) rc = write_tokens(t, text, cfg_bool(c, "special"), &e);
    mem_free(text);
    tok_free(t);
    gguf_close(g);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
