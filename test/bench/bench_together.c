/* bench_together.c: speed of several sequences together, with and without drafts.
 *
 *   bench_together [MODEL [SEQUENCES [PAIRS [THREADS]]]]      default: chimere-nano, 8, 8, 2
 *
 * In each pair, so many prompts of train/dflash/prompts.txt are answered at once at temperature 0, with and without drafts; which
 * comes first alternates. Printed: plain time per token of all sequences divided by drafted time, median and quartiles over the
 * pairs. Prompts count. Environment: DEVICE, cpu (default) or cuda. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "kernels/device.h"
#include "model/model.h"
#include "model/vocab.h"

enum { MAX_SEQ = 64, MAX_PAIR = 256, N_TEXT = 128, N_CTX = 512 };

static struct {
    struct tok *tok;
    struct engine *g[2]; /* plain, drafted */
    char *prompts;
    size_t size, at; /* of the next prompt */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int n_left, n_same, n_all; /* texts: not ended; the same in both; all */
    int32_t text[2][MAX_SEQ][N_TEXT], n_text[2][MAX_SEQ];
} b = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void fail(const struct err *e) {
    fprintf(stderr, "bench_together: %s\n", e->text);
    exit(1);
}

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    int32_t *place = j->ud; /* which side, which sequence */
    int32_t *n = &b.n_text[place[0]][place[1]];
    (void)is_end, (void)probs;
    if (*n < N_TEXT) b.text[place[0]][place[1]][(*n)++] = token;
    return true;
}

static void ended(struct engine_job *j) {
    (void)j;
    pthread_mutex_lock(&b.lock);
    b.n_left--;
    pthread_cond_signal(&b.ended);
    pthread_mutex_unlock(&b.lock);
}

static int32_t *next_prompt(int32_t *n) {
    char text[2048];
    const char *line = b.prompts + b.at, *end = memchr(line, '\n', b.size - b.at);
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_id = 0;
    b.at = end && end + 1 < b.prompts + b.size ? (size_t)(end + 1 - b.prompts) : 0;
    snprintf(text, sizeof text,
             "<|im_start|>user\n%.*s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
             end ? (int)(end - line) : 0, line);
    if (tok_encode(b.tok, text, strlen(text), true, false, &ids, &n_id, &e)) fail(&e);
    *n = (int32_t)n_id;
    return ids;
}

/* ms per token of all sequences. */
static double answer_all(int side, int32_t *const *ids, const int32_t *n_ids, int n_seq) {
    static struct engine_job jobs[MAX_SEQ];
    static int32_t places[MAX_SEQ][2];
    struct err e = {0};
    int64_t start = clock_ns(), n = 0;
    b.n_left = n_seq;
    for (int i = 0; i < n_seq; i++) {
        places[i][0] = side, places[i][1] = i;
        b.n_text[side][i] = 0;
        jobs[i] = (struct engine_job){.p.prompt = ids[i],
                                      .p.n_prompt = n_ids[i],
                                      .p.max_tokens = N_TEXT,
                                      .p.no_cache = true,
                                      .on_token = collect,
                                      .on_done = ended,
                                      .ud = places[i]};
        sampler_defaults(&jobs[i].p.sampling);
        jobs[i].p.sampling.temperature = 0;
        if (engine_submit(b.g[side], &jobs[i], &e)) fail(&e);
    }
    pthread_mutex_lock(&b.lock);
    while (b.n_left) pthread_cond_wait(&b.ended, &b.lock);
    pthread_mutex_unlock(&b.lock);
    double ms = clock_ms_since(start);
    for (int i = 0; i < n_seq; i++) n += b.n_text[side][i];
    return ms / (double)(n ? n : 1);
}

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

static double pair(int i, int n_seq) {
    int32_t *ids[MAX_SEQ], n_ids[MAX_SEQ];
    double ms[2];
    for (int k = 0; k < n_seq; k++) ids[k] = next_prompt(&n_ids[k]);
    for (int turn = 0; turn < 2; turn++)
        ms[(i + turn) % 2] = answer_all((i + turn) % 2, ids, n_ids, n_seq);
    for (int k = 0; k < n_seq; k++) {
        size_t bytes = (size_t)b.n_text[0][k] * sizeof *b.text[0][k];
        b.n_same += b.n_text[0][k] == b.n_text[1][k] && !memcmp(b.text[0][k], b.text[1][k], bytes);
        mem_free(ids[k]);
    }
    b.n_all += n_seq;
    return ms[0] / ms[1];
}

int main(int argc, char **argv) {
    struct dev *dev;
    struct model *m;
    struct err e = {0};
    int n_seq = argc > 2 ? atoi(argv[2]) : 8, n_pair = argc > 3 ? atoi(argv[3]) : 8;
    double ratios[MAX_PAIR];
    const struct device_params device = {.name = getenv("DEVICE") ? getenv("DEVICE") : "cpu",
                                         .n_thread = argc > 4 ? atoi(argv[4]) : 2};
    if (n_seq < 1 || n_seq > MAX_SEQ) n_seq = 8;
    if (n_pair < 1 || n_pair > MAX_PAIR) n_pair = 8;
    if (device_open(&dev, &device, &e) ||
        model_open(&m, argc > 1 ? argv[1] : TEST_NANO, dev, true, &e) ||
        vocab_load(&b.tok, m->gguf, &e) ||
        file_read(TEST_DATA "/../../train/dflash/prompts.txt", 1 << 24, &b.prompts, &b.size, &e))
        fail(&e);
    for (int k = 0; k < 2; k++) {
        struct engine_params p;
        engine_defaults(&p);
        p.n_seq = n_seq;
        p.n_ctx = (int64_t)N_CTX * n_seq;
        p.n_ctx_seq = N_CTX;
        p.speculate = k;
        if (engine_new(&b.g[k], m, b.tok, &p, &e)) fail(&e);
    }
    pair(0, n_seq); /* warms up */
    b.n_same = b.n_all = 0;
    for (int i = 0; i < n_pair; i++) ratios[i] = pair(i, n_seq);
    qsort(ratios, (size_t)n_pair, sizeof *ratios, by_size);
    printf(
        "%s, %d sequences, %d pairs: plain time / drafted time %.3f (%.3f to %.3f), same %d/%d\n",
        m->name, n_seq, n_pair, (ratios[n_pair / 2] + ratios[(n_pair - 1) / 2]) / 2,
        ratios[n_pair / 4], ratios[n_pair - 1 - n_pair / 4], b.n_same, b.n_all);
    for (int k = 0; k < 2; k++) engine_free(b.g[k]);
    tok_free(b.tok);
    model_close(m);
    dev->ops->close(dev);
    mem_free(b.prompts);
    return 0;
}
