/* logprob.h: log-probabilities of a row of logits. Pure functions. */
#ifndef CHIMERE_EVAL_LOGPROB_H
#define CHIMERE_EVAL_LOGPROB_H

#include <math.h>
#include <stdint.h>

/* log sum_i exp(x[i]); NaN if any logit is NaN or the row contains +infinity. */
static inline double logprob_norm(const float *x, int32_t n) {
    float top = x[0], bad = 0;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] > top) top = x[i];
        bad += x[i] - x[i]; /* NaN if x[i] is NaN or infinite */
    }
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)expf(x[i] - top);
    return isnan(bad) ? NAN : (double)top + log(sum);
}

#endif
