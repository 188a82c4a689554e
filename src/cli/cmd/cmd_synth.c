/* cmd_synth.c: makes a model of random weights with the dimensions of a published model. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "convert/synth.h"

const struct cfg_opt synth_options[] = {
    {"layers", 0, CFG_INT, "N", NULL, 1, 512, NULL, "layers instead of the published number"},
    {"experts", 0, CFG_INT, "N", NULL, 1, 65536, NULL,
     "routed experts instead of the published number"},
    {"vocab", 0, CFG_INT, "N", NULL, 1, 1 << 22, NULL, "tokens instead of the published number"},
    {"hollow", 0, CFG_BOOL, NULL, "false", 0, 0, NULL,
     "omit the weights' bytes (a sparse file), enough for inspect --memory"},
    {0},
};

static const char usage[] =
    "usage: chimere synth SHAPE MIX OUT.gguf [--layers N] [--experts N] [--vocab N]\n"
    "\n"
    "shapes: qwen35moe-35b (34 B weights), qwen35moe-122b, qwen35moe-397b, qwen35-27b (dense),\n"
    "        qwen35moe-mini (1 B), nemotron-30b;\n"
    "        small ones of other families: mamba-mini, mamba2-mini, nemotron-mini, "
    "nemotron-super-mini,\n"
    "        granite-mini, granite-moe-mini, granite-h-mini, falcon-h1-mini, jamba-mini, "
    "zamba2-mini,\n"
    "        hymba-mini, olmo-hybrid-mini, ministral-mini, lfm2-mini, lfm2-moe-mini, "
    "gpt-oss-mini,\n"
    "        gemma3-mini, gemma4-mini, gemma4-moe-mini, glm-flash-mini\n"
    "mixes:  ramp3 (experts iq3_s), iq2_k, iq3_k, iq4_k (experts), q4km, q8, q4_0";

static uint32_t number(const struct cfg *c, const char *name) {
    return cfg_is_set(c, name) ? (uint32_t)cfg_int(c, name) : 0;
}

int cmd_synth(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, synth_options, usage, argc, argv, &status)) return status;
    struct err e = {0};
    struct synth_options o = {cfg_pos(c, 0),        cfg_pos(c, 1),        cfg_pos(c, 2),
                              number(c, "layers"),  number(c, "experts"), number(c, "vocab"),
                              cfg_bool(c, "hollow")};
    struct synth_result r;
    int rc;
    if (cfg_n_pos(c) != 3)
        rc = err_set(&e, CHIMERE_EINVAL, "synth: expected SHAPE, MIX and OUT, got %d arguments",
                     cfg_n_pos(c));
    else rc = synth_write(&o, &r, &e);
    if (!rc)
        printf("%s: %.2f B weights, %.2f GB, %.2f bits per weight\n", o.out,
               (double)r.n_weights * 1e-9, (double)r.n_bytes * 1e-9,
               (double)r.n_bytes * 8 / (double)r.n_weights);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
