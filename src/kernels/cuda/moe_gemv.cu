/* moe_gemv.cu: the mixture of experts at decode, with 8-bit activations. One kernel chooses the experts and concurrently
 * computes the shared expert's down product; it then computes the hidden rows of the chosen experts. */
#include <utility>

#include "kernels/cuda/moe.cuh"

struct hidden8_job {
    planes gate, up;
    act8 x, hidden;
    choice_job choice;                     /* logits NULL: already chosen */
    int32_t *ids;                          /* [n_tok, n_used] */
    const int16_t *order;                  /* the pairs sorted by expert; NULL: as they are */
    float *weights;                        /* the same */
    int32_t n_tok, act, n_round, n_sh_row; /* n_sh_row: per block */
    int32_t n_all, per_round;              /* units of all hidden rows; units per round */
    divisor per_pair, n_used;              /* units per hidden row; choice.n_used */
    divisor sh_quads;                      /* sh_down.n_in / 4 */
    int32_t sh_lanes, sh_rows; /* lanes per shared row, rows per warp: 16 and 2, or 32 and 1 */
    int32_t sh_input;          /* bytes per token of the shared expert's input */
    int32_t sh_toks;           /* tokens whose inputs are in shared memory at once */
    int32_t x_bytes;           /* size of x in shared memory; 0: not copied there */
    int32_t sh_bytes;          /* size of a block's rows of sh_down there; 0: not copied there */
    int32_t sh_at[4], sh_row_bytes[4]; /* per plane: offset there; bytes per row */
    divisor sh_turns;                  /* warp tasks for a block's rows and SHARED_TOKS tokens */
    planes sh_down;                    /* of the shared expert; form FORM_NONE: none */
    glu_job shared;                    /* its input */
    const float *sh_weight;            /* [n_tok] or NULL: its logistic function is the factor */
    float *out;                        /* [n_tok, sh_down.n_row] */
    const float *gate_b, *up_b;        /* [n_expert, up.n_row] or NULL */
};

/* Named barriers: of the warps of the shared expert; from TEAM_BARRIER on, one per team. */
enum { SHARED_BARRIER = 1, TEAM_BARRIER = 2 };
/* Limit of shared memory with the input and the shared expert's rows in it; sm_75 has 64 KB in total. */
static size_t near_bytes(const struct cuda *c, int32_t n_tok) {
    bool is_large = c->compute / 10 == 9 || c->compute / 10 == 10;
    return (c->compute < 80 ? 48 : n_tok > STEP_TOKS && is_large ? 128 : 64) << 10;
}

/* ---- the input ---- */

/* Starts the copy of the input to shared memory: later reads from global memory would queue
 * after those of the weights. */
static __device__ __forceinline__ void input_copy(const hidden8_job &j, uint8_t *room) {
    int n_code = j.n_tok * j.up.n_unit * 2, n_meta = j.n_tok * j.up.n_unit;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n_code; i += (int)blockDim.x)
        copy_async16(room + 16 * i, j.x.q + 16 * i, true);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n_meta; i += (int)blockDim.x)
        copy_async<8>(room + 16 * n_code + 8 * i, j.x.meta + i);
    copy_commit();
}

/* ---- the down product of the shared expert, concurrent with the choice ---- */

/* The block's rows of the matrix, starting at row 0 of each plane; room: destination of shared_copy. */
static __device__ __forceinline__ planes shared_part(const hidden8_job &j, const uint8_t *room) {
    planes w = j.sh_down;
    const uint8_t **plane[] = {&w.codes, &w.more, &w.sub, &w.top};
    uint32_t first = blockIdx.x * (uint32_t)j.n_sh_row;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t at = first * (uint32_t)j.sh_row_bytes[p];
        *plane[p] = j.sh_bytes ? room + j.sh_at[p] + at % 16 : *plane[p] + at;
    }
    return w;
}
/* Starts the copy of these rows, by n_warp warps: contiguous bytes in groups of 16 (planes are aligned to that). */
static __device__ __forceinline__ void shared_copy(const hidden8_job &j, uint8_t *room, int warp,
                                                   int n_warp) {
    const uint8_t *plane[] = {j.sh_down.codes, j.sh_down.more, j.sh_down.sub, j.sh_down.top};
    int first = (int)blockIdx.x * j.n_sh_row, n_row = min(j.n_sh_row, (int)j.sh_down.n_row - first);
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t at = (uint32_t)(first * j.sh_row_bytes[p]);
        int n = ((int)(at % 16) + n_row * j.sh_row_bytes[p] + 15) / 16;
        const uint8_t *from = plane[p] + at / 16 * 16;
#pragma unroll 1
        for (int i = 32 * warp + (int)(threadIdx.x % 32); i < n; i += 32 * n_warp)
            copy_async16(room + j.sh_at[p] + 16 * i, from + 16 * i, true);
    }
    copy_commit();
}

/* Sums of one row of w times the inputs of up to SHARED_TOKS tokens, contiguous in shared memory, by a group of
 * lanes. Returns the sum of the token that lanes_share assigns to the lane. */
enum { SHARED_TOKS = 2, SHARED_INPUTS = 24 << 10 /* bytes, if they are of more than 8 tokens */ };
template <int F>
__device__ __forceinline__ float shared_row8(const hidden8_job &j, const planes &w, uint32_t row,
                                             int first, const uint8_t *in, int n_tok) {
    float sum[SHARED_TOKS] = {};
#pragma unroll 1
    for (int u = first; u < w.n_unit; u += j.sh_lanes) {
        raw<F> code;
        unpacked v;
        load_unit<F, false>(code, w, row * (uint32_t)w.n_unit + (uint32_t)u);
        unpack<F>(code, grid_tables{}, v);
        /* the zero point is already subtracted; I8X has no zero point and, like every form, two scales here */
        constexpr int SAME = form_traits<F>::mid ? (int)FORM_I8X : F;
#pragma unroll
        for (int t = 0; t < SHARED_TOKS; t++) {
            if (t >= n_tok) break;
            act8 a = act8_at((void *)(in + t * j.sh_input), 1, w.n_in);
            sum[t] = unit_dot8<SAME>(v, act8_load(a, (uint32_t)u), sum[t]);
        }
    }
    return lanes_share<SHARED_TOKS>(sum, (int)(threadIdx.x % 32), j.sh_lanes);
}
/* Forms of the shared expert that this kernel supports; other forms are multiplied after the experts. */
#define SHARED_FORMS(X) X(FORM_I8) X(FORM_N4) X(FORM_N4K) X(FORM_N5K) X(FORM_N6K)
static bool is_shared_form(int form) {
    switch (form) {
#define X(F) case F:
        SHARED_FORMS(X)
#undef X
        return true;
    }
    return false;
}

/* Number of tokens from t0 on whose inputs are in shared memory at the same time. */
static __device__ __forceinline__ int shared_toks(const hidden8_job &j, int t0) {
    return j.n_tok - t0 < j.sh_toks ? j.n_tok - t0 : j.sh_toks;
}

/* Computes their inputs, act(gate) * up in 8 bits, by n_warp warps. */
static __device__ __forceinline__ void shared_inputs(const hidden8_job &j, uint8_t *in, int t0,
                                                     int warp, int n_warp) {
    int n_tok = shared_toks(j, t0), quads = (int)j.sh_quads.n, n_in = j.sh_down.n_in;
    int lane = (int)(threadIdx.x % 32);
#pragma unroll 1
    for (int q = 32 * warp + lane; q - lane < n_tok * quads; q += 32 * n_warp) {
        int t = (int)((uint32_t)q / j.sh_quads); /* a row is a multiple of 8 quads */
        bool has = t < n_tok;
        act8_put4(act8_at(in + t * j.sh_input, 1, n_in), q - t * quads,
                  has ? glu_quad(j.shared, (int64_t)t0 * quads + q) : make_float4(0, 0, 0, 0), has);
    }
}

/* Warp tasks of a block: each has one row per group of lanes and up to SHARED_TOKS tokens. */
static __device__ __forceinline__ int shared_turns(const hidden8_job &j, int n_tok) {
    return (n_tok + SHARED_TOKS - 1) / SHARED_TOKS * (int)j.sh_turns.n;
}

/* out[t] += factor * down(input) for n_tok tokens from t0 on and the block's rows, by n_warp warps. */
static __device__ __forceinline__ void shared_rows(const hidden8_job &j, const planes &w,
                                                   const uint8_t *in, int t0, int n_tok, int warp,
                                                   int n_warp) {
    int lane = (int)(threadIdx.x % 32), mine = lane & (j.sh_lanes - 1);
    int each = j.sh_lanes / SHARED_TOKS, n_turn = shared_turns(j, n_tok);
#pragma unroll 1
    for (int turn = warp; turn < n_turn; turn += n_warp) {
        int pass = (int)((uint32_t)turn / j.sh_turns), t = pass * SHARED_TOKS;
        int r = (turn - pass * (int)j.sh_turns.n) * j.sh_rows + (lane >= j.sh_lanes);
        int row = (int)blockIdx.x * j.n_sh_row + r;
        bool has = r < j.n_sh_row && row < (int)w.n_row;
        int u = has ? mine : w.n_unit; /* the lanes must not diverge */
        int tok = t + (mine >= each);
        bool puts = has && tok < n_tok && (mine & (each - 1)) == 0;
        float *out = j.out + (int64_t)(t0 + tok) * w.n_row + row;
        /* loaded before the product, whose operands are in shared memory */
        float before = puts ? *out : 0.0f, y = 0.0f;
        float factor = puts && j.sh_weight ? j.sh_weight[t0 + tok] : 0.0f;
        switch (w.form) {
#define X(F)                                                                                       \
    case F: y = shared_row8<F>(j, w, (uint32_t)r, u, in + t * j.sh_input, n_tok - t); break;
            SHARED_FORMS(X)
#undef X
        }
        if (puts) *out = before + (j.sh_weight ? logistic(factor) : 1.0f) * y;
    }
}

/* Computes inputs and rows by the last n_warp warps of the block, while the other warps choose experts. */
static __device__ __forceinline__ void shared_expert(const hidden8_job &j, uint8_t *in,
                                                     const uint8_t *room, int warp, int n_warp) {
#pragma unroll 1
    for (int t0 = 0; t0 < j.n_tok; t0 += j.sh_toks) {
        /* the previous inputs are no longer read */
        if (t0) named_barrier_sync(SHARED_BARRIER, 32 * n_warp);
        shared_inputs(j, in, t0, warp, n_warp);
        copy_wait<0>();
        named_barrier_sync(SHARED_BARRIER, 32 * n_warp);
        shared_rows(j, shared_part(j, room), in, t0, shared_toks(j, t0), warp, n_warp);
    }
}

/* ---- the chosen experts' hidden rows ---- */

/* A team of warps computes a unit of 32 elements of a pair's hidden row; a warp computes two rows of gate and two of
 * up at a time, or four of up. A block has one or more teams and computes n_round units with each. If there are many
 * pairs, a block has more and smaller teams, so that some load while others wait at a barrier. */
enum { HIDDEN_ROWS = 4, GATED_TEAM = 512, PLAIN_TEAM = 256, PLAIN_TEAMS = 3, MANY_TEAMS = 4 };
static __host__ __device__ constexpr int hidden_team(bool has_gate, bool many) {
    return has_gate && !many ? GATED_TEAM : PLAIN_TEAM;
}
/* How many registers a form takes, as a class from 0 to 2. */
static __host__ __device__ constexpr int hidden_weight(int form, bool many, bool more) {
    bool heavy = form == FORM_N5 || form == FORM_N5M || grid_words(form) > 0 ||
                 (many && (form == FORM_N4K || form == FORM_N3K)) ||
                 (more && (form == FORM_N4 || form == FORM_N3K));
    return is_wide_form(form) || (heavy && more) ? 2 : heavy || more ? 1 : 0;
}
static __host__ __device__ constexpr int hidden_teams(int form, bool has_gate, bool many,
                                                      bool more = TAKES_MORE) {
    int weight = hidden_weight(form, many, more), most = many ? (int)MANY_TEAMS : (int)PLAIN_TEAMS;
    return has_gate && !many ? 1 : most - weight < 2 ? 2 : most - weight;
}
/* Threads per block for __launch_bounds__. With few pairs it exceeds the real number, so that enough registers remain
 * for a concurrent block of down8_kernel. */
static __host__ __device__ constexpr int hidden_bound(int form, bool has_gate, bool many) {
    int weight = hidden_weight(form, many, TAKES_MORE);
    if (!has_gate || many) return PLAIN_TEAM * hidden_teams(form, has_gate, many);
    return GATED_TEAM + (weight == 2 ? 0 : weight == 1 ? 128 : 192);
}

/* A warp's part of a team. In a round it computes ROWS rows of the team's unit, in HALVES steps of EACH rows per
 * matrix. A lane takes every 32nd unit of a row, HIDDEN_ROWS rows at a time, and loads them DEPTH steps before their
 * use. Lanes beyond the end of a row read its last unit with a scale of zero. Unit indices fit in 32 bits. */
template <int F, bool HAS_GATE, bool MANY> struct hidden8_warp {
    static constexpr int EACH = HAS_GATE ? HIDDEN_ROWS / 2 : HIDDEN_ROWS;
    static constexpr int TEAM = hidden_team(HAS_GATE, MANY), MAX_TEAMS = MANY_TEAMS;
    static constexpr int ROWS = 32 / (TEAM / 32), HALVES = ROWS / EACH;
    static constexpr int DEPTH = HALVES > 1 ? 1 : 2, N_SUM = HALVES * HIDDEN_ROWS;
    const hidden8_job &j;
    const int16_t *chosen; /* [n_tok * n_used]; from MAX_PAIRS on, the order; shared */
    float (*h)[MAX_TEAMS][2][32];
    raw<F> code[DEPTH][HIDDEN_ROWS];
    uint32_t at, x_at; /* the lane's first unit to load next: of weights, of the input */
    int last;          /* from there to the last unit of a row */

    __device__ __forceinline__ uint32_t unit_of(int round) const {
        return (uint32_t)(round * j.per_round) + threadIdx.x / TEAM * gridDim.x + blockIdx.x;
    }
    /* The pair at a place of the order. */
    __device__ __forceinline__ uint32_t pair_at(uint32_t place) const {
        bool sorts = (MANY || !HAS_GATE) && j.order;
        return sorts ? (uint32_t)chosen[MAX_PAIRS + place] : place;
    }
    /* Makes the first half of round `round` the next load. */
    __device__ __forceinline__ void aim(int round) {
        uint32_t u = unit_of(round), last = (uint32_t)j.n_all - 1;
        u = u < last ? u : last;
        uint32_t place = u / j.per_pair, pair = pair_at(place), lane = threadIdx.x % 32;
        int32_t mat = chosen[pair];
        /* dropped: read the weights of a kept expert of the same token, which are in the cache */
        for (int k = (int)(pair / j.n_used * j.n_used.n); mat < -1; k++)
            if (chosen[k] >= 0) mat = chosen[k];
        uint32_t row = (uint32_t)(mat < 0 ? 0 : mat) * (uint32_t)j.up.n_row +
                       (u - place * j.per_pair.n) * 32 + threadIdx.x % TEAM / 32 * ROWS;
        at = row * (uint32_t)j.up.n_unit + lane;
        x_at = pair / j.n_used * (uint32_t)j.up.n_unit + lane;
    }
    __device__ __forceinline__ act_unit input(uint32_t unit) const {
        DYNAMIC_SHARED(uint8_t, room);
        act8 near = act8_at(room + 4 * grid_words(F), j.n_tok, j.up.n_in);
        return j.x_bytes ? act8_load(near, unit) : act8_load(j.x, unit);
    }
    /* Offset from a lane's first unit of a row to its unit of a step, clamped to the row's last unit. */
    __device__ __forceinline__ uint32_t from_first(int step) const {
        return (uint32_t)(step * 32 < last ? step * 32 : last);
    }
    __device__ __forceinline__ void ask(raw<F> *c, int half, int step) const {
        constexpr plane_sizes s = sizes_of(F);
        static_assert(s.top_units == 1 || s.top_units == 8, "of all forms");
        uint32_t i = at + from_first(step) + (uint32_t)(half * EACH * j.up.n_unit);
#pragma unroll
        for (int r = 0; r < HIDDEN_ROWS; r++) {
            const planes &w = HAS_GATE && r < EACH ? j.gate : j.up;
            uint32_t unit = i + (uint32_t)(r % EACH * w.n_unit);
            /* division by 8: two instructions; a shift, combined with the address, becomes four */
            uint32_t top = s.top_units == 8 ? __umulhi(unit, 1u << 29) : unit;
            load_field<s.codes, true>(c[r].code, w.codes + (uint64_t)unit * s.codes);
            load_field<s.more, true>(c[r].more, w.more + (uint64_t)unit * s.more);
            load_field<s.sub, false>(&c[r].sub, w.sub + (uint64_t)unit * s.sub);
            load_field<s.top, false>(c[r].top, w.top + (uint64_t)top * s.top);
        }
    }
    __device__ __forceinline__ void begin(void) {
        last = j.up.n_unit - 1 - (int)(threadIdx.x % 32);
        aim(0);
#pragma unroll
        for (int d = 0; d < DEPTH; d++) ask(code[d], 0, d);
        look_ahead();
    }
    /* Prefetches the quants of later steps into the L2 cache; one lane per cache line. With many pairs it would not
     * pay: measured, a step of four tokens takes longer with it. */
    __device__ __forceinline__ void look_ahead(void) const {
        constexpr int SIZE = sizes_of(F).codes, LINE = SIZE < 128 ? 128 / SIZE : 1;
        if (MANY || threadIdx.x % LINE) return;
#pragma unroll 1
        for (int step = DEPTH; step * 32 <= last; step++)
#pragma unroll
            for (int r = 0; r < HIDDEN_ROWS; r++) {
                const planes &w = HAS_GATE && r < EACH ? j.gate : j.up;
                uint32_t unit = at + (uint32_t)(step * 32 + r % EACH * w.n_unit);
                prefetch_tlb(w.codes + (uint64_t)unit * SIZE);
            }
    }
    __device__ __forceinline__ void run(const grid_tables &g) {
        int n_step = (j.up.n_unit + 31) / 32, lane = (int)(threadIdx.x % 32);
        /* where the lane stores its sum */
        int k = lane / (32 / N_SUM), r = k % HIDDEN_ROWS, warp = (int)(threadIdx.x % TEAM / 32);
        int place = warp * ROWS + k / HIDDEN_ROWS * EACH + r % EACH;
        float *to = &h[0][threadIdx.x / TEAM][r / EACH][place];
#pragma unroll 1
        for (int round = 0; round < j.n_round; round++) {
            uint32_t first = x_at;
            float sum[N_SUM] = {};
#pragma unroll 1
            for (int step = 0; step < n_step; step += DEPTH) {
                int next = step + DEPTH;
                bool more = true;
#pragma unroll
                for (int d = 0; d < DEPTH; d++) {
                    if (d == 0 || step + d < n_step) {
                        act_unit a = input(first + from_first(step + d));
                        if ((step + d) * 32 > last) a.scale = 0.0f;
#pragma unroll
                        for (int half = 0; half < HALVES; half++) {
                            float *y = sum + half * HIDDEN_ROWS;
#pragma unroll
                            for (int i = 0; i < HIDDEN_ROWS; i++)
                                y[i] = raw_dot8<F>(code[d][i], a, g, y[i]);
                            if (half + 1 < HALVES) ask(code[d], half + 1, step);
                        }
                    }
                    if (d == 0 && next >= n_step) {
                        next = 0;
                        if (round + 1 < j.n_round) aim(round + 1);
                        else more = false;
                    }
                    if (more) ask(code[d], 0, next + d);
                }
            }
            float y = lanes_share<N_SUM>(sum, lane, 32);
            if (lane % (32 / N_SUM) == 0) to[round % 2 * (MAX_TEAMS * 2 * 32)] = y;
            finish(round);
        }
    }
    /* One of the team's warps quantizes the unit while the others continue; its buffer is reused two rounds later. */
    __device__ __forceinline__ void finish(int round) const {
        int team = (int)(threadIdx.x / TEAM), lane = (int)(threadIdx.x % 32);
        named_barrier_sync(TEAM_BARRIER + team, TEAM);
        if ((int)(threadIdx.x % TEAM / 32) != round % (TEAM / 32)) return;
        uint32_t u = unit_of(round);
        if (u >= (uint32_t)j.n_all) return;
        uint32_t place = u / j.per_pair, pair = pair_at(place);
        int32_t mat = chosen[pair];
        float y = h[round % 2][team][0][lane];
        int at = mat * (int)j.up.n_row + (int)(u - place * j.per_pair.n) * 32 + lane;
        if (HAS_GATE) {
            float up = h[round % 2][team][1][lane];
            if (j.gate_b && mat >= 0) y += j.gate_b[at];
            if (j.up_b && mat >= 0) up += j.up_b[at];
            y = glu_of(j.act, y, up);
        } else {
            if (j.up_b && mat >= 0) y += j.up_b[at];
            y = act_of(j.act, y);
        }
        act8_put(j.hidden, u + (pair - place) * j.per_pair.n, mat < 0 ? 0.0f : y);
    }
};

/* Every block chooses the experts itself, one warp per token, while its other warps multiply its rows of the shared
 * expert. The next kernel starts once the choice is stored, and may read experts' weights before its own pdl_wait;
 * the register bound leaves space for it. Shared memory: grid points, input, the shared expert's inputs and rows. */
template <int F, bool HAS_GATE, bool MANY>
__global__ void __launch_bounds__(hidden_bound(F, HAS_GATE, MANY), 1)
    hidden8_kernel(const __grid_constant__ hidden8_job j, grid_tables g) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float h[2][MANY_TEAMS][2][32];
    __shared__ int16_t chosen[2 * MAX_PAIRS];
    threads_fit();
    uint8_t *x = (uint8_t *)(points + grid_words(F)), *room = x + j.x_bytes,
            *in = room + j.sh_bytes;
    int warp = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    int n_warp = (int)(blockDim.x / 32), n_used = j.choice.n_used;
    int n_choose = !j.choice.logits ? 0 : j.n_tok < n_warp / 2 ? j.n_tok : n_warp / 2;
    bool is_clerk =
        blockIdx.x + 1 == gridDim.x; /* stores the choice; has no rows if there are few */
    bool is_shared = warp >= n_choose && j.sh_down.form != FORM_NONE &&
                     blockIdx.x * (uint32_t)j.n_sh_row < (uint32_t)j.sh_down.n_row;
    if (is_shared && j.sh_bytes) shared_copy(j, room, warp - n_choose, n_warp - n_choose);
    if (grid_words(F)) grid_load(g, F, points);
    if (lane == 0) {
        prefetch_tlb(j.choice.logits ? (const void *)j.choice.logits : j.ids);
        prefetch_tlb(j.x.q);
        prefetch_tlb(j.shared.up);
    }
    pdl_wait();
    if (j.x_bytes) input_copy(j, x);
    if (!j.choice.logits)
        for (int i = (int)threadIdx.x; i < j.n_tok * n_used; i += (int)blockDim.x) {
            chosen[i] = (int16_t)j.ids[i];
            if (j.order) chosen[MAX_PAIRS + i] = j.order[i];
        }
    else if (warp < n_choose)
#pragma unroll 1
        for (int t = warp; t < j.n_tok; t += n_choose) {
            int32_t id = warp_keep(j.choice, t, warp_choose<CHOOSE_FEW / 32>(j.choice, t));
            if (lane < n_used) chosen[t * n_used + lane] = (int16_t)id;
            if (!is_clerk || lane >= n_used) continue;
            j.ids[t * n_used + lane] = id;
            __threadfence();
        }
    if (is_shared) shared_expert(j, in, room, warp - n_choose, n_warp - n_choose);
    copy_wait<0>();
    __syncthreads();
    pdl_trigger();
    hidden8_warp<F, HAS_GATE, MANY> mine = {j, chosen, h};
    mine.begin();
    if (j.choice.logits && is_clerk) /* by its last warps */
#pragma unroll 1
        for (int t = n_warp - 1 - warp; t < j.n_tok; t += n_warp) {
            float weight = warp_weight(j.choice, t, lane < n_used ? chosen[t * n_used + lane] : -1);
            if (lane < n_used) j.weights[t * n_used + lane] = weight;
        }
    if ((int)blockIdx.x < j.n_all) mine.run(g);
}

template <int F>
static void hidden_launch(struct cuda *c, bool has_gate, bool is_many, dim3 grid, dim3 block,
                          size_t room, const hidden8_job &h) {
    auto kernel = hidden8_kernel<F, false, false>;
    if (has_gate) kernel = is_many ? hidden8_kernel<F, true, true> : hidden8_kernel<F, true, false>;
    launch(c, kernel, grid, block, room, h, c->tables);
}

bool cuda_hidden8(struct cuda *c, const struct moe_args *a, const expert_set &e,
                  const choice_job &choice, int32_t *ids, float *weights, const int16_t *order,
                  const glu_job &shared, const float *sh_weight, const act8 &hidden) {
    int64_t n_ff = e.up.n_row;
    hidden8_job h = {};
    h.gate = e.gate, h.up = e.up, h.choice = choice, h.ids = ids, h.weights = weights;
    h.order = order;
    h.n_tok = a->n_tok, h.act = e.act, h.hidden = hidden, h.gate_b = e.gate_b, h.up_b = e.up_b;
    h.per_pair = divisor_of(n_ff / 32), h.n_used = divisor_of(a->n_used);
    h.x = cuda_act8(c, a->x, a->up->n_in, a->n_tok, a->up->n_in);
    /* one block per multiprocessor, with as many teams as finish in one round */
    int32_t units = (int32_t)(a->n_tok * a->n_used * (n_ff / 32));
    int32_t teams = (units + c->n_sm - 1) / c->n_sm;
    bool is_many = e.has_gate && teams > 2;
    int32_t most = hidden_teams(e.up.form, e.has_gate, is_many, c->compute >= 100);
    teams = teams < most ? teams : most;
    h.n_round = (units + teams * c->n_sm - 1) / (teams * c->n_sm);
    /* one more, to store the choice */
    dim3 grid((unsigned)(units < c->n_sm ? units + 1 : c->n_sm));
    h.n_all = units, h.per_round = teams * (int32_t)grid.x;
    dim3 block((unsigned)(teams * hidden_team(e.has_gate, is_many)));
    size_t room = grid_bytes(c, e.up.form);
    bool apart = a->sh_down && !is_shared_form(cuda_repack_of(a->sh_down).form);
    if (a->sh_down && !apart) {
        h.sh_down = cuda_repack_of(a->sh_down);
        h.sh_quads = divisor_of(h.sh_down.n_in / 4);
        h.shared = shared, h.sh_weight = sh_weight, h.out = a->out;
        h.n_sh_row = (int32_t)((h.sh_down.n_row + grid.x - 1) / grid.x);
        h.sh_lanes = h.sh_down.n_unit > 16 ? 32 : 16, h.sh_rows = 32 / h.sh_lanes;
        h.sh_turns = divisor_of((h.n_sh_row + h.sh_rows - 1) / h.sh_rows);
        h.sh_input = (h.sh_down.n_in / 32 * 40 + 15) & ~15;
        h.sh_toks = a->n_tok < VEC8_TOKS ? a->n_tok : VEC8_TOKS;
        while (2 * h.sh_toks <= a->n_tok && 2 * h.sh_toks * h.sh_input <= SHARED_INPUTS)
            h.sh_toks *= 2;
        room += (size_t)(h.sh_toks * h.sh_input);
        struct plane_part part[4];
        cuda_repack_parts(a->sh_down, part);
        for (int p = 0; p < 4; p++) {
            h.sh_at[p] = h.sh_bytes, h.sh_row_bytes[p] = (int32_t)part[p].row_bytes;
            h.sh_bytes += (h.n_sh_row * h.sh_row_bytes[p] + 15) / 16 * 16 + 16;
        }
    }
    size_t x_bytes = (act8_bytes(a->n_tok, e.up.n_in) + 15) & ~(size_t)15;
    if (room + x_bytes <= near_bytes(c, a->n_tok)) h.x_bytes = (int32_t)x_bytes, room += x_bytes;
    if (room + (size_t)h.sh_bytes <= near_bytes(c, a->n_tok)) room += (size_t)h.sh_bytes;
    else h.sh_bytes = 0;
    cuda_reads_planes(c, e.up, experts_touched(a));
    cuda_reads_planes(c, e.gate, experts_touched(a));
    if (a->sh_down && !apart) cuda_reads_planes(c, h.sh_down, 1);
    switch (e.up.form) {
#define X(F)                                                                                       \
    case F: hidden_launch<F>(c, e.has_gate, is_many, grid, block, room, h); break;
        FOR_EACH_FORM(X)
#undef X
    }
    return apart;
}
