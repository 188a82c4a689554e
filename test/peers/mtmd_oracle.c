/* mtmd_oracle.c: libmtmd and libllama by themselves, for test/cli/test_llama_images.sh: what our answers about images are
 * compared with. Links those two alone.
 *
 *   mtmd_oracle MODEL MMPROJ IMAGE PIECES   the prompt on standard input, libmtmd's marker in it; PIECES: the answer's
 *   tokens as hexadecimal bytes, one per line. Prints how many tokens the prompt has, and by how much at most libllama
 *   likes another token better than one of these. */
#include <ggml-backend.h>
#include <mtmd-helper.h>
#include <mtmd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 16, MAX_PIECE = 256, N_BATCH = 512, N_CTX = 1024 };

static struct llama_model *model;
static struct llama_context *ctx;
static const struct llama_vocab *vocab;
static char text[MAX_TEXT];

static void quiet(enum ggml_log_level level, const char *line, void *ud) {
    (void)ud;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(line, stderr);
}

static int fail(const char *what) {
    fprintf(stderr, "mtmd_oracle: %s\n", what);
    return 1;
}

static int open_model(const char *path) {
    llama_log_set(quiet, NULL);
    mtmd_helper_log_set(quiet, NULL);
    llama_backend_init();
    if (!ggml_backend_dev_count()) ggml_backend_load_all_from_path(LLAMA_LIB_DIR);
    model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model) return fail("the model does not load");
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = N_CTX;
    p.n_batch = p.n_ubatch = N_BATCH;
    p.n_threads = p.n_threads_batch = 1;
    ctx = llama_init_from_model(model, p);
    vocab = llama_model_get_vocab(model);
    return ctx ? 0 : fail("no context");
}

/* The whole prompt; its tokens, or -1. */
static llama_pos eval_prompt(const char *mmproj, const char *image) {
    struct mtmd_context_params p = mtmd_context_params_default();
    p.n_threads = 1;
    p.use_gpu = false;
    p.print_timings = false;
    mtmd_context *eyes = mtmd_init_from_file(mmproj, model, p);
    if (!eyes) return -1;
    struct mtmd_helper_bitmap_wrapper w =
        mtmd_helper_bitmap_init_from_file(eyes, image, false, mtmd_helper_init_opt_default());
    if (!w.bitmap) return -1;
    const mtmd_bitmap *list[] = {w.bitmap};
    const struct mtmd_input_text in = {.text = text,
                                       .text_len = fread(text, 1, sizeof text - 1, stdin),
                                       .add_special = true,
                                       .parse_special = true};
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    llama_pos n = 0;
    if (mtmd_tokenize(eyes, chunks, &in, list, 1) ||
        mtmd_helper_eval_chunks(eyes, ctx, chunks, 0, 0, N_BATCH, true, &n))
        n = -1;
    mtmd_input_chunks_free(chunks);
    mtmd_bitmap_free(w.bitmap);
    mtmd_free(eyes);
    return n;
}

static llama_token token_of(const char *bytes, int32_t n) {
    char piece[MAX_PIECE];
    for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); id++)
        if (llama_token_to_piece(vocab, id, piece, sizeof piece, 0, true) == n &&
            memcmp(piece, bytes, (size_t)n) == 0)
            return id;
    return -1;
}

int main(int argc, char **argv) {
    char line[2 * MAX_PIECE + 2], bytes[MAX_PIECE];
    float gap = 0;
    if (argc < 5) return fail("expected MODEL MMPROJ IMAGE PIECES");
    FILE *pieces = fopen(argv[4], "r");
    if (!pieces || open_model(argv[1])) return fail("cannot open");
    llama_pos n = eval_prompt(argv[2], argv[3]);
    if (n < 0) return fail("the prompt cannot be evaluated");
    printf("%d", (int)n);
    while (fgets(line, sizeof line, pieces)) {
        int32_t n_byte = (int32_t)(strspn(line, "0123456789abcdef") / 2);
        for (int32_t i = 0; i < n_byte; i++) {
            unsigned x;
            sscanf(line + 2 * i, "%2x", &x);
            bytes[i] = (char)x;
        }
        llama_token id = token_of(bytes, n_byte);
        const float *row = llama_get_logits_ith(ctx, -1);
        if (id < 0 || !row) return fail("no such token");
        float best = row[0];
        for (int32_t i = 1; i < llama_vocab_n_tokens(vocab); i++)
            if (row[i] > best) best = row[i];
        if (best - row[id] > gap) gap = best - row[id];
        if (llama_decode(ctx, llama_batch_get_one(&id, 1))) return fail("llama_decode fails");
    }
    printf(" %.6f\n", (double)gap);
    return 0;
}
