/* cmd_quantize.c: writes a model file with other tensor types. */
#include <inttypes.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "convert/quantize.h"
#include "convert/quantize_mix.h"
#include "format/quant.h"

/* clang-format off */
const struct cfg_opt quantize_options[] = {
    {"imatrix", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "importance matrix, GGUF or .dat"},
    {"tensor-type", 0, CFG_LIST, "REGEX=TYPE", NULL, 0, 0, NULL, "type of tensors whose name matches; the first match applies"},
    {"pure", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "the same type for every matrix, output and embedding too"},
    {"tails", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "rows that do not fit a type: in two tensors, NAME and NAME.tail (not portable)"},
    {"split", 0, CFG_BYTES, "SIZE", NULL, 1e6, 1e15, NULL, "write files of about this size"},
    {"dry-run", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "show each tensor's type and the size; write nothing"},
    {"threads", 't', CFG_INT, "N", "0", 0, 512, NULL, "threads; 0: one per core"},
    {"quiet", 'q', CFG_BOOL, NULL, "false", 0, 0, NULL, "no progress bar"},
    {0},
};
/* clang-format on */

static void build_usage(struct buf *b) {
    buf_puts(b, "usage: chimere quantize IN.gguf OUT.gguf TYPE [--imatrix FILE]\n"
                "                        [--tensor-type REGEX=TYPE]...\n\n"
                "TYPE, in any case:");
    size_t column = 100;
    const char *name;
    for (int i = 0; (name = quantize_mix_name(i)) != NULL; i++) {
        if (column > 70) {
            buf_puts(b, "\n ");
            column = 1;
        }
        buf_printf(b, " %s", name);
        column += 8;
    }
    buf_puts(
        b, "\n\nNorms, routers, convolutions and other small tensors stay as they are. Rows whose\n"
           "length is not a multiple of 256 get a type with blocks of 32, else F16. With --tails,\n"
           "only their last columns do; only Chimère can open such a file.");
}

static void show_plan(const struct quantize *q) {
    for (size_t i = 0; i < quantize_n_items(q); i++) {
        const struct quantize_item *item = quantize_item_at(q, i);
        const struct gguf_tensor *t = item->tensor;
        printf("%-40s %6" PRIu64 " x %-9" PRIu64 " %-8s -> %-8s %12" PRIu64 "%s%s\n", t->name,
               t->ne[0], t->n_elements / t->ne[0], quant_traits(t->type)->name,
               quant_traits(item->to.type)->name, item->to.n_bytes,
               item->is_weighted ? "  weighted" : "",
               item->is_refitted ? "  (rows do not fit the mix's type)" : "");
        if (item->to.tail_bytes)
            printf("%-40s %6" PRIu64 " of these columns      -> %-8s %12" PRIu64 "\n", "",
                   t->ne[0] - item->to.n_first, quant_traits(item->to.tail)->name,
                   item->to.tail_bytes);
    }
}

static void show_sizes(const struct quantize *q, const char *path, double seconds) {
    uint64_t n, before, after;
    char from[16], to[16];
    quantize_sizes(q, &n, &before, &after);
    str_bytes(from, before);
    str_bytes(to, after);
    printf("%s: %s -> %s, %.2f bits per weight", path, from, to,
           n ? (double)after * 8 / (double)n : 0.0);
    if (seconds > 0)
        printf(", %.1f s, %.1f million weights per second", seconds, (double)n * 1e-6 / seconds);
    putchar('\n');
}

static int run(const struct cfg *c, struct err *e) {
    struct quantize_options o = {
        .type = cfg_pos(c, 2),
        .imatrix = cfg_str(c, "imatrix"),
        .pure = cfg_bool(c, "pure"),
        .tails = cfg_bool(c, "tails"),
        .n_thread = (int)cfg_int(c, "threads"),
        .split_bytes = cfg_is_set(c, "split") ? cfg_bytes(c, "split") : 0,
    };
    o.n_tensor_types = cfg_list(c, "tensor-type", &o.tensor_types);
    struct quantize *q;
    int rc = quantize_open(&q, cfg_pos(c, 0), &o, e);
    if (rc) return rc;
    int64_t start = clock_ns();
    bool dry = cfg_bool(c, "dry-run");
    if (dry) show_plan(q);
    else rc = quantize_run(q, cfg_pos(c, 1), !cfg_bool(c, "quiet"), e);
    if (!rc) show_sizes(q, cfg_pos(c, 1), dry ? 0 : clock_ms_since(start) * 1e-3);
    quantize_close(q);
    return rc;
}

int cmd_quantize(int argc, char **argv) {
    struct cfg *c;
    struct buf usage;
    int status;
    buf_init(&usage, 1 << 14);
    build_usage(&usage);
    bool parsed = cli_parse(&c, quantize_options, usage.p ? usage.p : "", argc, argv, &status);
    if (parsed) {
        struct err e = {0};
        int rc = cfg_n_pos(c) == 3
                     ? run(c, &e)
                     : err_set(&e, CHIMERE_EINVAL,
                               "quantize: expected IN, OUT and TYPE, got %d argument%s",
                               cfg_n_pos(c), cfg_n_pos(c) == 1 ? "" : "s");
        status = rc ? cli_fail(&e) : 0;
        cfg_free(c);
    }
    buf_fini(&usage);
    return status;
}
