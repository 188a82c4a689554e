/* llama_speed.c: work for bench/families.sh to time: llama.cpp reads N_PROMPT tokens at once, or N_GEN singly, once to
 * warm up and REPETITIONS times more. The tokens are those of no text; one thread.
 *
 * usage: llama_speed MODEL N_PROMPT N_GEN REPETITIONS */
#include <stdio.h>
#include <stdlib.h>

#include "ggml-backend.h"
#include "llama.h"

enum { MAX_TOKENS = 2048 };

static void quiet(enum ggml_log_level level, const char *text, void *ud) {
    (void)ud;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int n_prompt = atoi(argv[2]), n_gen = atoi(argv[3]), n_run = atoi(argv[4]);
    if (n_prompt < 0 || n_gen < 0 || n_prompt + n_gen > MAX_TOKENS || n_prompt + n_gen < 1)
        return 2;
    llama_log_set(quiet, NULL);
    ggml_backend_load_all(); /* builds that choose the processor's code when they run */
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 1;
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = MAX_TOKENS;
    cp.n_threads = cp.n_threads_batch = 1;
    struct llama_context *c = llama_init_from_model(m, cp);
    if (!c) return 1;
    llama_token ids[MAX_TOKENS];
    for (int i = 0; i < MAX_TOKENS; i++) ids[i] = (llama_token)((i * 7919 + 11) % n_vocab);
    for (int run = 0; run <= n_run; run++) {
        llama_memory_clear(llama_get_memory(c), true);
        if (n_prompt && llama_decode(c, llama_batch_get_one(ids, n_prompt))) return 1;
        for (int i = 0; i < n_gen; i++)
            if (llama_decode(c, llama_batch_get_one(ids + n_prompt + i, 1))) return 1;
    }
    llama_free(c);
    llama_model_free(m);
    return 0;
}
