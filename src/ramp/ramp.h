/* ramp.h: chooses the type of every tensor of a model, so that a file of a given size diverges least.
 *
 * Four steps share a work folder, where each leaves its result and finds it again: an interrupted run
 * continues where it was, and a step whose inputs did not change is not repeated.
 *
 *   analyse  second moments of inputs (imatrix.gguf), error of every tensor in every type on sampled rows
 *            (analysis.json)
 *   search   gains of tensors fitted on the engine (gains.json), types on convex hulls by a Lagrange
 *            multiplier, then evolution by measured divergence (search.json); result: plan.json
 *   build    the GGUF file, streamed, under its name only when whole
 *   report   figures and pictures of a finished file
 *
 * Same model, options and seed: same bytes. One thread calls. */
#ifndef CHIMERE_RAMP_RAMP_H
#define CHIMERE_RAMP_RAMP_H

#include "base/buf.h"
#include "base/err.h"
#include "kernels/ops.h"

enum ramp_mode {
    RAMP_PORTABLE, /* types that llama.cpp reads */
    RAMP_CHIMERE,  /* every type that our kernels run */
};

struct ramp_options {
    const char *model, *out, *work; /* paths */
    enum ramp_mode mode;
    /* one of these: bytes of the file, bits per weight, or a card's memory with a context */
    uint64_t size_bytes;
    double bpw;
    const char *card; /* ramp_card.h */
    int64_t ctx;
    double min_tok_s;    /* on the card, by bytes per second of each type; 0: no floor */
    const char *text;    /* path of calibration text; NULL: the model writes its own */
    const char *imatrix; /* path; NULL: collected from the text, else from norm weights */
    bool predict_only;   /* never run the model */
    struct dev *dev;     /* borrowed: where candidates run; NULL with predict_only */
    int n_thread;        /* of encoding; 0: one per core */
    uint64_t seed;
    int32_t generations, population; /* of the evolution; 0 generations: none */
    int32_t probe_tok, judge_tok;    /* tokens that gains and final candidates are measured on */
    uint64_t sample_weights; /* per tensor and type in the analysis; 0: as many as take a minute */
    uint64_t cache_bytes;    /* of encoded tensors in the work folder */
    bool quiet;              /* no progress bar */
};

void ramp_defaults(struct ramp_options *o);

int ramp_analyse(const struct ramp_options *o, struct err *e);
int ramp_search(const struct ramp_options *o, struct err *e); /* after analyse */
int ramp_build(const struct ramp_options *o, struct err *e);  /* after search */

/* What search found, for display; read from plan.json. */
struct ramp_summary {
    uint64_t n_bytes, n_weights;                     /* of the file */
    double bpw, predicted, measured, measured_start; /* KL divergence; negative: not measured */
    int32_t generations;
};
int ramp_summary_read(struct ramp_summary *out, const struct ramp_options *o, struct err *e);

/* Figures of OUT as text; also report.json, pareto.svg and heat.svg in the work folder. Divergence is measured
 * over o->text if it is given. */
int ramp_report(const struct ramp_options *o, struct buf *text, struct err *e);

#endif
