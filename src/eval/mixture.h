/* mixture.h: measures the value of an n-gram memory: perplexity with and without it, and fits the weights of the
 * mixture.
 *
 * A measurement is one point per scored token: the probability given by the model, the probability given by the
 * table's contexts, and the features that choose between the two. The points determine the perplexity at any alpha
 * and the fit, without running the model again. */
#ifndef CHIMERE_EVAL_MIXTURE_H
#define CHIMERE_EVAL_MIXTURE_H

#include "engram/mix.h"
#include "eval/windows.h"

struct mixture_point {
    float p_model, p_engram, left; /* left: share of p_engram's mass that goes to the model */
    float former[2]; /* log-probability with the formula of the first Chimère, at two strengths */
    float f[ENGRAM_N_FEATURE];
    bool is_known; /* the table knows the context */
};

struct mixture_points {
    struct mixture_point *p; /* owned [cap] */
    size_t n, cap;
};

/* Strengths for which the earlier formula is shown: logit += alpha * ln(p_engram) of the predicted tokens. */
extern const float mixture_former[2];

struct mixture_doc {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok;
};
/* Appends the points of the documents. Each is read in half-overlapping windows of ctx tokens that start without
 * context. */
int mixture_measure(struct model *m, const struct engram_table *t, const struct mixture_doc *docs,
                    size_t n_doc, int32_t ctx, const struct windows_params *p,
                    struct mixture_points *out, struct err *e);
void mixture_points_fini(struct mixture_points *p);

/* Returns the mean nats per token at that alpha; weights as in engram_weight. */
double mixture_nll(const struct mixture_points *p, const float *weights, float alpha);
double mixture_former_nll(const struct mixture_points *p, int which);
/* share of points whose context the table knows */
double mixture_known(const struct mixture_points *p);
/* Fits the weights that predict the domain's text best while other text loses at most MIXTURE_LOSS of perplexity.
 * The other text is weighted 1, then 2, 4, and so on, until that holds. */
#define MIXTURE_LOSS 0.002
int mixture_fit(const struct mixture_points *domain, const struct mixture_points *other,
                float weights[ENGRAM_N_FEATURE], struct err *e);

#endif
