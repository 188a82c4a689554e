/* cmd_convert.c: converts a Hugging Face folder, local or on a hub, to a GGUF file. */
#include <inttypes.h>
#include <stdio.h>

#include "base/str.h"
#include "cli/args/hub_args.h"
#include "convert/hf.h"

const struct cfg_opt convert_options[] = {
    {"type", 0, CFG_STR, "TYPE", "source", 0, 0, NULL,
     "type of matrices: source, f32, f16, bf16, q8_0, Q4_K_M ..."},
    {"pre", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "pre-tokenizer, if it is not recognized"},
    {"split", 0, CFG_BYTES, "SIZE", NULL, 0, 0, NULL, "write several files of about this size"},
    {"ignore-field", 0, CFG_LIST, "NAME", NULL, 0, 0, NULL,
     "field of config.json to ignore; may be repeated"},
    {"threads", 't', CFG_INT, "N", "0", 0, 512, NULL, "threads; 0: one per core"},
    {0}};

int cmd_convert(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, convert_options,
            "usage: chimere convert HF_DIR OUT.gguf [--type TYPE]\n"
            "       chimere convert hf:OWNER/REPO OUT.gguf\n"
            "\n"
            "HF_DIR holds config.json, tokenizer.json and safetensors files. hf: fetches these\n"
            "files to the models folder; an interrupted download resumes where it stopped.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    struct hf_result r = {0};
    const char *type = cfg_str(c, "type");
    struct hf_options o = {.dir = cfg_pos(c, 0),
                           .out = cfg_pos(c, 1),
                           .type = str_eq_nocase(type, "source") ? NULL : type,
                           .pre = cfg_str(c, "pre"),
                           .split_bytes = cfg_is_set(c, "split") ? cfg_bytes(c, "split") : 0,
                           .n_thread = (int)cfg_int(c, "threads")};
    o.n_ignore = cfg_list(c, "ignore-field", &o.ignore);
    char folder[4096];
    int rc = cfg_n_pos(c) == 2
                 ? 0
                 : err_set(&e, CHIMERE_EINVAL, "convert: expected HF_DIR and OUT, got %d arguments",
                           cfg_n_pos(c));
    if (!rc && str_starts(o.dir, "hf:")) {
        rc = hub_args_checkpoint(c, o.dir, folder, sizeof folder, &e);
        o.dir = folder;
    }
    if (!rc) rc = hf_convert(&o, &r, &e);
    if (!rc)
        printf("%s: %" PRIu64 " tensors, %.3f B weights, %.2f bits per weight\n", o.out,
               r.n_tensors, (double)r.n_weights * 1e-9,
               r.n_weights ? (double)r.n_bytes * 8 / (double)r.n_weights : 0);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
