/* cmd_dump.c: writes one tensor of a GGUF file as little-endian floats. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "cli/cli.h"
#include "format/gguf.h"
#include "format/quant.h"

const struct cfg_opt dump_options[] = {{0}};

enum { CHUNK = 1 << 14 }; /* elements decoded together; a multiple of every block size */

static int dump(const struct gguf_tensor *t, struct err *e) {
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->decode)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "tensor %s: expected a type that stands for floats, got %s", t->name,
                       q->name);
    /* rows with their own scale are decoded one by one */
    size_t chunk = q->head_bytes ? (size_t)t->ne[0] : CHUNK;
    uint64_t row_bytes = 0;
    float *out = mem_alloc_array(chunk, sizeof *out);
    if (!out) return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", t->name);
    quant_row_bytes(t->type, t->ne[0], &row_bytes);
    int rc = 0;
    for (uint64_t i = 0; i < t->n_elements && !rc; i += chunk) {
        size_t n = t->n_elements - i < chunk ? (size_t)(t->n_elements - i) : chunk;
        uint64_t at =
            q->head_bytes ? i / chunk * row_bytes : i / q->block_elements * q->block_bytes;
        q->decode(t->data + at, out, n);
        if (fwrite(out, sizeof *out, n, stdout) != n)
            rc = err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    }
    if (!rc && fflush(stdout)) rc = err_set(e, CHIMERE_EIO, "standard output: %s", strerror(errno));
    mem_free(out);
    return rc;
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
    } else if (os_is_terminal(stdout)) {
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
