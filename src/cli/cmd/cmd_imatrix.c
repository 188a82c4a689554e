/* cmd_imatrix.c: computes the importance matrix of a model over a text, for quantize --imatrix. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args/model_args.h"
#include "format/quant.h"
#include "eval/importance.h"
#include "model/vocab.h"

const struct cfg_opt imatrix_options[] = {
    MODEL_OPTIONS,
    {"file", 'f', CFG_STR, "TEXT", NULL, 0, 0, NULL,
     "calibration text; -: standard input (default: Chimère's own)"},
    {"output", 'o', CFG_STR, "OUT", NULL, 0, 0, NULL, "file to write (GGUF)"},
    {"ctx", 'c', CFG_INT, "N", "512", WINDOWS_MIN_TOK, 1 << 20, NULL, "tokens of a window"},
    {"chunks", 0, CFG_INT, "N", "0", 0, 1 << 30, NULL, "maximum number of windows; 0: all"},
    {"parallel", 0, CFG_INT, "N", "8", 1, WINDOWS_MAX_SEQS, NULL, "windows per forward pass"},
    {"batch", 'b', CFG_INT, "N", "512", 1, 65536, NULL, "tokens per forward pass"},
    {"correlations", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "also collect correlations of inputs, for the rounding of quantize"},
    {"process-output", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "also collect for the output matrix"},
    {0}};

/* The own text is beside the program where it is installed, and in models/ of the source repository. */
static int find_text(const struct cfg *c, char *out, size_t out_size, struct err *e) {
    const char *path = cfg_str(c, "file");
    if (path && (size_t)snprintf(out, out_size, "%s", path) >= out_size)
        return err_set(e, CHIMERE_ELIMIT, "%s: path is too long", path);
    if (path || !file_find_data("calibration.txt", out, out_size) ||
        !file_find_data("models/calibration.txt", out, out_size))
        return 0;
    return err_set(e, CHIMERE_ENOENT, "expected -f TEXT: calibration.txt is not on this machine");
}

static int collect(const struct cfg *c, struct model *m, const char *path,
                   const struct windows_text *t, struct err *e) {
    const struct importance_params p = {
        .windows = {.n_seq = (int32_t)cfg_int(c, "parallel"),
                    .n_batch = (int32_t)cfg_int(c, "batch"),
                    .k_type = (uint32_t)QUANT_F16,
                    .v_type = (uint32_t)QUANT_F16,
                    .whole = true,
                    .what = cfg_bool(c, "quiet") ? NULL : "importance matrix"},
        .output = cfg_bool(c, "process-output"),
        .correlations = cfg_bool(c, "correlations"),
        .n_thread = (int32_t)cfg_int(c, "threads")};
    const char *out = cfg_str(c, "output");
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct importance *s;
    int rc = importance_run(&s, m, t, &p, e);
    if (rc) return rc;
    rc = importance_write(s, out, utf8_is_valid(name, strlen(name)) ? name : "text", e);
    if (!rc) {
        uint64_t n_unreached, n_expert;
        importance_unreached(s, &n_unreached, &n_expert);
        printf("%s: %zu matrices over %zu windows of %d tokens\n", out, importance_n(s),
               t->n_window, t->ctx);
        if (p.correlations)
            printf("  correlations of %zu of them; the others are too large\n",
                   importance_n_correlated(s));
        if (n_unreached)
            printf("  the text never reached %" PRIu64 " of %" PRIu64 " matrices of experts\n",
                   n_unreached, n_expert);
    }
    importance_free(s);
    return rc;
}

static int run(const struct cfg *c, struct err *e) {
    struct dev *dev = NULL;
    struct model *m = NULL;
    struct tok *tok = NULL;
    struct windows_text t = {.tokens = NULL};
    char path[4096], *text = NULL;
    size_t n = 0;
    if (!cfg_str(c, "output")) return err_set(e, CHIMERE_EINVAL, "expected -o OUT");
    int rc = find_text(c, path, sizeof path, e);
    if (!rc) rc = file_read(path, WINDOWS_MAX_TEXT, &text, &n, e);
    if (rc) return rc;
    rc = model_args_open(c, &dev, &m, e);
    if (!rc) {
        rc = vocab_load(&tok, m->gguf, e);
        if (!rc) rc = windows_cut(&t, tok, text, n, (int32_t)cfg_int(c, "ctx"), e);
        size_t limit = (size_t)cfg_int(c, "chunks");
        if (!rc && limit && t.n_window > limit) t.n_window = limit;
        if (!rc) rc = collect(c, m, path, &t, e);
        windows_text_fini(&t);
        tok_free(tok);
        model_close(m);
        dev->ops->close(dev);
    }
    mem_free(text);
    return rc;
}

int cmd_imatrix(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, imatrix_options,
                   "usage: chimere imatrix [-m FILE] [-f TEXT] -o OUT\nWith --device auto, it runs "
                   "on the processor.",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    int rc = run(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
