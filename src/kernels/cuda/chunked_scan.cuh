/* chunked_scan.cuh: recurrences over many tokens in chunks of 32: delta net (delta_net.cu) and Mamba-2 (mamba.cu). */
#ifndef CHIMERE_KERNELS_CUDA_CHUNKED_SCAN_CUH
#define CHIMERE_KERNELS_CUDA_CHUNKED_SCAN_CUH

#include "kernels/cuda/recurrent.cuh"

/* Per token i of a head, with state S [d_k, d_v]: S_i = e^(g_i) S_(i-1) + k_i d_i^T, o_i = S_i^T q_i, where
 *   the delta net: d_i = b_i (v_i - e^(g_i) S_(i-1)^T k_i), q and k of norm 1, q times d_k^(-1/2),
 *     g_i = a softplus(gate_i + bias), b_i = beta_scale * sigmoid(beta_i);
 *   Mamba-2: d_i = b_i v_i, b_i = clamp(softplus(gate_i + bias)), g_i = a b_i, o_i + skip v_i. */
struct chunk_job {
    int32_t n_k_head, n_head, n_rep, d_k, d_v; /* n_rep: heads per key head; d_k: of one launch */
    int32_t is_grouped, is_delta; /* is_grouped: key head h / n_rep, else h % n_k_head */
    float eps, beta_scale, dt_min, dt_max;
    int32_t n_k;            /* floats from one key head to the next; rows of a head's state */
    const float *q, *k, *v; /* first head of the first token; rows are `stride` apart */
    int64_t stride;
    const float *gate, *beta; /* [n_tok, gate_stride]; beta: delta net only */
    int64_t gate_stride;
    const float *a, *bias, *skip; /* [n_head]; skip: Mamba-2 only */
    float *s; /* (k, v) of head h is at slot * s_stride + n_k d_v h + k s_k + v s_v */
    int64_t s_stride;
    int32_t s_k, s_v;
    float *out; /* [n_tok, n_head d_v] */
    /* set by cuda_chunks: */
    int32_t first, n_span, row0; /* the spans of a launch; row of the first span */
    int32_t is_added;            /* out += instead of out = */
    uint32_t *qk;                /* [slot, n_k_head][k, q][high, low][32, 128] bfloat16 */
    uint32_t *tp;                /* [slot, n_head][T, P][high, low][32, 32] bfloat16 */
    float *f;                    /* [slot, n_head][5][32] */
};

/* Whether cuda_chunks supports the device and shape: sm_80 or newer; the delta net with keys of at most 128. */
bool cuda_has_chunks(const struct cuda *c, int32_t n_k, bool is_delta);
void cuda_chunks(struct cuda *c, const struct span *spans, const dspans &b, chunk_job g);
/* Scratch bytes that cuda_chunks takes for n_tok tokens. */
size_t cuda_chunk_scratch(int64_t n_tok, int64_t n_k_head, int64_t n_head);

#endif
