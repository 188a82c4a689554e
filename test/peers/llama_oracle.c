/* llama_oracle.c: libllama by itself, for test/cli/test_llama.sh: what ours is compared with. Links libllama alone.
 *
 *   text MODEL N            greedy text after the prompt on standard input, as far as N tokens
 *   check MODEL N_PROMPT    ids on standard input, one per line: how many of those after N_PROMPT libllama likes best,
 *                           and by how much at most it likes another one better
 *   bench MODEL N           milliseconds of processor time per decoded token, greedy, one sequence
 *   odds MODEL              ids on standard input, one per line: the log-probability of each but the first; with
 *                           LLAMA_ADAPTER=FILE and LLAMA_ADAPTER_SCALE, with that adapter
 *   embed MODEL             the mean of the last hidden rows of the text on standard input, one number per line */
#include <ggml-backend.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEXT = 1 << 20, MAX_TOKENS = 1024, N_BATCH = 512 };

static struct llama_model *model;
static struct llama_context *ctx;
static const struct llama_vocab *vocab;
static struct llama_batch batch;
static char text[MAX_TEXT];
static llama_token ids[MAX_TOKENS];

static void quiet(enum ggml_log_level level, const char *line, void *ud) {
    (void)ud;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(line, stderr);
}

static int fail(const char *what) {
    fprintf(stderr, "llama_oracle: %s\n", what);
    return 1;
}

static int open_model(const char *path, bool embeddings) {
    llama_log_set(quiet, NULL);
    llama_backend_init();
    if (!ggml_backend_dev_count()) ggml_backend_load_all_from_path(LLAMA_LIB_DIR);
    model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return fail("the model does not load");
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = MAX_TOKENS;
    p.n_batch = p.n_ubatch = N_BATCH;
    p.swa_full = true;
    p.n_threads = p.n_threads_batch = LLAMA_THREADS;
    p.embeddings = embeddings;
    ctx = llama_init_from_model(model, p);
    if (!ctx) return fail("no context");
    vocab = llama_model_get_vocab(model);
    batch = llama_batch_init(N_BATCH, 0, 1);
    return 0;
}

/* Positions [from, to) of ids; logits of all or of the last. */
static int eval(int from, int to, bool all) {
    for (int at = from; at < to; at += N_BATCH) {
        int n = to - at < N_BATCH ? to - at : N_BATCH;
        batch.n_tokens = n;
        for (int i = 0; i < n; i++) {
            batch.token[i] = ids[at + i];
            batch.pos[i] = at + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = all || at + i == to - 1;
        }
        if (llama_decode(ctx, batch)) return fail("llama_decode fails");
    }
    return 0;
}

static int best(const float *row) {
    int k = 0;
    for (int i = 1; i < llama_vocab_n_tokens(vocab); i++)
        if (row[i] > row[k]) k = i;
    return k;
}

static int tokenize(void) {
    size_t n = fread(text, 1, sizeof text, stdin);
    return llama_tokenize(vocab, text, (int32_t)n, ids, MAX_TOKENS, true, false);
}

static int run_text(int n_more) {
    int n = tokenize();
    if (n < 1 || eval(0, n, false)) return 1;
    for (int i = 0; i < n_more; i++) {
        char piece[256];
        ids[n] = best(llama_get_logits_ith(ctx, -1));
        if (llama_vocab_is_eog(vocab, ids[n])) break;
        int len = llama_token_to_piece(vocab, ids[n], piece, sizeof piece, 0, false);
        if (len > 0) fwrite(piece, 1, (size_t)len, stdout);
        n++;
        if (i + 1 < n_more && eval(n - 1, n, false)) return 1;
    }
    return 0;
}

static int run_check(int n_prompt) {
    int n = 0, n_best = 0;
    float gap = 0;
    while (n < MAX_TOKENS && scanf("%d", &ids[n]) == 1) n++;
    if (n <= n_prompt || eval(0, n_prompt, false)) return 1;
    for (int i = n_prompt; i < n; i++) {
        const float *row = llama_get_logits_ith(ctx, -1);
        int k = best(row);
        n_best += k == ids[i];
        if (row[k] - row[ids[i]] > gap) gap = row[k] - row[ids[i]];
        if (eval(i, i + 1, false)) return 1;
    }
    printf("%d of %d best, gap %.4f\n", n_best, n - n_prompt, (double)gap);
    return 0;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int run_bench(int n_more) {
    for (int i = 0; i < 32; i++) ids[i] = 100 + i;
    if (eval(0, 32, false)) return 1;
    double start = now_ms();
    for (int i = 0; i < n_more; i++) {
        ids[32 + i] = best(llama_get_logits_ith(ctx, -1));
        if (eval(32 + i, 33 + i, false)) return 1;
    }
    printf("%.4f\n", (now_ms() - start) / n_more);
    return 0;
}

static int set_adapter(void) {
    const char *path = getenv("LLAMA_ADAPTER"), *text_scale = getenv("LLAMA_ADAPTER_SCALE");
    float scale = text_scale ? strtof(text_scale, NULL) : 1;
    if (!path) return 0;
    struct llama_adapter_lora *adapter = llama_adapter_lora_init(model, path);
    if (!adapter) return fail("the adapter does not load");
    return llama_set_adapters_lora(ctx, &adapter, 1, &scale) ? fail("the adapter does not fit") : 0;
}

static double odds_of(const float *row, llama_token id) {
    double sum = 0;
    float most = row[best(row)];
    for (int i = 0; i < llama_vocab_n_tokens(vocab); i++) sum += exp((double)(row[i] - most));
    return (double)(row[id] - most) - log(sum);
}

static int run_odds(void) {
    int n = 0;
    while (n < N_BATCH && scanf("%d", &ids[n]) == 1) n++;
    if (n < 2 || set_adapter() || eval(0, n, true)) return 1;
    for (int i = 1; i < n; i++) printf("%.6f\n", odds_of(llama_get_logits_ith(ctx, i - 1), ids[i]));
    return 0;
}

static int run_embed(void) {
    int n = tokenize(), n_embd = llama_model_n_embd(model);
    if (n < 1 || n > N_BATCH || eval(0, n, true)) return 1;
    const float *pooled = llama_get_embeddings_seq(ctx, 0);
    for (int i = 0; i < n_embd; i++) {
        double sum = 0;
        for (int t = 0; t < n && !pooled; t++)
            sum += (double)llama_get_embeddings_ith(ctx, t)[i] / n;
        printf("%.7g\n", pooled ? (double)pooled[i] : sum);
    }
    return 0;
}

int main(int argc, char **argv) {
    int n = argc > 3 ? atoi(argv[3]) : 0;
    if (argc < 3) return fail("usage: text|check|bench|odds|embed MODEL [N]");
    if (open_model(argv[2], strcmp(argv[1], "embed") == 0)) return 1;
    if (strcmp(argv[1], "text") == 0) return run_text(n);
    if (strcmp(argv[1], "check") == 0) return run_check(n);
    if (strcmp(argv[1], "bench") == 0) return run_bench(n);
    if (strcmp(argv[1], "odds") == 0) return run_odds();
    if (strcmp(argv[1], "embed") == 0) return run_embed();
    return fail("unknown mode");
}
