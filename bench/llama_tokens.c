/* llama_tokens.c: greedy continuations by llama.cpp: reads lines of token ids, "5 17 299", and writes for each
 * the N ids that follow. bench/same_tokens.sh builds it against a llama.cpp of yours.
 *
 * usage: llama_tokens MODEL N <ids >ids */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "llama.h"

enum { MAX_TOKENS = 2048 };

static void quiet(enum ggml_log_level level, const char *text, void *ud) {
    (void)ud;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    llama_log_set(quiet, NULL);
    ggml_backend_load_all(); /* builds that choose the processor's code when they run */
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 1;
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m)), n_more = atoi(argv[2]);
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = MAX_TOKENS;
    cp.n_threads = cp.n_threads_batch = 2;
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin)) {
        struct llama_context *c = llama_init_from_model(m, cp);
        llama_token ids[MAX_TOKENS];
        int n = 0;
        for (char *p = line, *end; n < MAX_TOKENS - n_more; p = end) {
            long id = strtol(p, &end, 10);
            if (end == p) break;
            ids[n++] = (llama_token)id;
        }
        for (int i = 0, at = 0; i < n_more; i++) {
            if (llama_decode(c, llama_batch_get_one(ids + at, n - at))) return 1;
            const float *x = llama_get_logits_ith(c, -1);
            int best = 0;
            for (int k = 1; k < n_vocab; k++) best = x[k] > x[best] ? k : best;
            at = n;
            ids[n++] = best;
            printf(i + 1 < n_more ? "%d " : "%d\n", best);
        }
        llama_free(c);
    }
    llama_model_free(m);
    return 0;
}
