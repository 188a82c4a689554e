/* cmd_dump.c: one tensor of a GGUF file as little-endian floats. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "format/gguf.h"
#include "format/quant.h"

const struct cfg_opt dump_options[] = {{0}};

enum { CHUNK = 1 << 14 }; /* elements decoded at once; a multiple of every block */

static int dump(const struct gguf_tensor *t, struct err *e) {
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->decode)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "tensor %s: expected a type that stands for floats, got %s", t->name,
                       q->name);
    static float out[CHUNK];
    for (uint64_t i = 0; i < t->n_elements; i += CHUNK) {
        size_t n = t->n_elements - i < CHUNK ? (size_t)(t->n_elements - i) : CHUNK;
        q->decode(t->data + i / q->block_elements * q->block_bytes, out, n);
        if (fwrite(out, sizeof *out, n, stdout) != n)
            return err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    }
    if (fflush(stdout)) return err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    return 0;
}

int cmd_dump(int argc, char **argv) {
    struct cfg *c;
    struct err e = {0};
    struct gguf *g = NULL;
    int status, rc;
    if (!cli_parse(&c, dump_options,
                   "usage: chimere dump FILE TENSOR\n\n"
                   "Writes the tensor's values to standard output as little-endian 32-bit floats,\n"
                   "rows in file order.",
                   argc, argv, &status))
        return status;
    if (cfg_n_pos(c) != 2) {
        rc = err_set(&e, CHIMERE_EINVAL, "dump: expected FILE and TENSOR, got %d argument%s",
                     cfg_n_pos(c), cfg_n_pos(c) == 1 ? "" : "s");
    } else if (isatty(STDOUT_FILENO)) {
        rc = err_set(&e, CHIMERE_EINVAL, "dump: binary data would go to the terminal");
        err_hint(&e, "send it to a file or a program");
    } else {
        rc = gguf_open(&g, cfg_pos(c, 0), &e);
    }
    const struct gguf_tensor *t = rc ? NULL : gguf_find_tensor(g, cfg_pos(c, 1));
    if (!rc && !t) {
        rc = err_set(&e, CHIMERE_ENOENT, "%s: no tensor named '%s'", cfg_pos(c, 0), cfg_pos(c, 1));
        err_hint(&e, "chimere inspect FILE --tensors lists them");
    }
    if (!rc) rc = dump(t, &e);
    if (g) gguf_close(g);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
