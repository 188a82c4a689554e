/* moe_hidden.cu: the mixture of experts while decoding, through bytes: the choice, the shared expert's last product
 * beside it, and the hidden rows of the chosen experts. */
#include <utility>

#include "kernels/cuda/moe.cuh"

struct hidden8_job {
    planes gate, up;
    act8 x, hidden;
    choice_job choice;                     /* logits NULL: made already */
    int32_t *ids;                          /* [n_tok, n_used] */
    float *weights;                        /* the same */
    int32_t n_tok, act, n_round, n_sh_row; /* n_sh_row: of a block */
    int32_t n_all, per_round;              /* units of all hidden rows, of a round of all blocks */
    divisor per_pair, n_used;              /* units of a hidden row; choice.n_used */
    divisor sh_quads;                      /* sh_down.n_in / 4 */
    planes sh_down;                        /* the shared expert's; form FORM_NONE: there is none */
    glu_job shared;                        /* its input */
    const float *sh_weight; /* [n_tok] or NULL: its factor, through the logistic function */
    float *out;             /* [n_tok, sh_down.n_row] */
};

/* Barriers of a part of the block: of the warps of the shared expert, and of team k and those after it. */
enum { SHARED_BARRIER = 1, TEAM_BARRIER = 2 };

/* ---- the shared expert's last product, beside the choice ---- */

/* Bytes from one token's input to the next. */
static __host__ __device__ inline int shared_input(int n_in) { return (n_in / 32 * 40 + 15) & ~15; }
/* Lanes of a row, as a power of two. */
static __device__ __forceinline__ int shared_lanes(const planes &w) {
    return w.n_unit > 16 ? 5 : 4;
}

/* Sums of a row of w with up to SHARED_TOKS tokens' inputs, in shared memory one behind the other, by a group of lanes;
 * of the token that lanes_share gives the lane. */
enum { SHARED_TOKS = 2 };
template <int F>
__device__ __forceinline__ float shared_row8(const planes &w, uint32_t row, int lane, int group,
                                             const uint8_t *in, int n_tok) {
    float sum[SHARED_TOKS] = {};
#pragma unroll 1
    for (int u = lane; u < w.n_unit; u += group) {
        raw<F> code; /* shared_near has brought it near */
        unpacked v;
        load_unit<F>(code, w, row * (uint32_t)w.n_unit + (uint32_t)u);
        unpack<F>(code, grid_tables{}, v);
        /* the middle is off the codes already; I8X has none, and two scales as every form */
        constexpr int SAME = form_traits<F>::mid ? (int)FORM_I8X : F;
#pragma unroll
        for (int t = 0; t < SHARED_TOKS; t++) {
            if (t >= n_tok) break;
            act8 a = act8_at((void *)(in + t * shared_input(w.n_in)), 1, w.n_in);
            sum[t] = unit_dot8<SAME>(v, act8_load(a, (uint32_t)u), sum[t]);
        }
    }
    return lanes_share<SHARED_TOKS>(sum, lane, group);
}
/* Forms of a shared expert that are multiplied there; others come after the experts. */
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

/* By the last n_warp warps of the block: out[t] += factor * down(act(gate) * up), of the block's rows. Inputs of
 * VEC8_TOKS tokens at a time lie in shared memory behind the grid points. */
static __device__ __forceinline__ void shared_down8(const hidden8_job &j, int points, int warp,
                                                    int n_warp) {
    DYNAMIC_SHARED(uint8_t, room);
    uint8_t *in = room + points;
    const planes &w = j.sh_down;
    int shift = shared_lanes(w), lane = (int)(threadIdx.x % 32), quads = (int)j.sh_quads.n;
    int first = (int)blockIdx.x * j.n_sh_row, end = first + j.n_sh_row;
    end = end < (int)w.n_row ? end : (int)w.n_row;
    if (first >= end) return;
    /* a group of lanes has a row, a warp one or two */
    int group = 1 << shift, mine = lane & (group - 1), each = group / SHARED_TOKS;
    int rows = 32 >> shift, n_slot = (end - first + rows - 1) >> (5 - shift);
#pragma unroll 1
    for (int t0 = 0; t0 < j.n_tok; t0 += VEC8_TOKS) {
        int n_tok = j.n_tok - t0 < VEC8_TOKS ? j.n_tok - t0 : (int)VEC8_TOKS;
        if (t0) barrier_of(SHARED_BARRIER, 32 * n_warp); /* inputs are read no more */
#pragma unroll 1
        for (int q = 32 * warp + lane; q - lane < n_tok * quads; q += 32 * n_warp) {
            int t = (int)((uint32_t)q / j.sh_quads); /* rows are whole groups of 8 quads */
            bool has = t < n_tok;
            act8 a = act8_at(in + t * shared_input(w.n_in), 1, w.n_in);
            act8_put4(a, q - t * quads,
                      has ? glu_quad(j.shared, (int64_t)t0 * quads + q) : make_float4(0, 0, 0, 0),
                      has);
        }
        barrier_of(SHARED_BARRIER, 32 * n_warp);
        int t = 0;
#pragma unroll 1
        for (int slot = warp;; slot += n_warp) {
            for (; slot >= n_slot; slot -= n_slot) t += SHARED_TOKS;
            if (t >= n_tok) break;
            int r = first + slot * rows + (lane >> shift), tok = t + mine / each;
            int u = r < end ? mine : w.n_unit; /* all lanes go together */
            const uint8_t *x = in + t * shared_input(w.n_in);
            float y = 0.0f;
            switch (w.form) {
#define X(F)                                                                                       \
    case F: y = shared_row8<F>(w, (uint32_t)r, u, group, x, n_tok - t); break;
                SHARED_FORMS(X)
#undef X
            }
            if (r >= end || tok >= n_tok || mine % each) continue;
            float *out = j.out + (int64_t)(t0 + tok) * w.n_row + r;
            *out += (j.sh_weight ? logistic(j.sh_weight[t0 + tok]) : 1.0f) * y;
        }
    }
}

/* Brings the weights that a warp of shared_down8 multiplies first near this multiprocessor. */
static __device__ __forceinline__ void shared_near(const hidden8_job &j, int warp) {
    const planes &w = j.sh_down;
    int shift = shared_lanes(w), lane = (int)(threadIdx.x % 32);
    int at_row = (warp << (5 - shift)) + (lane >> shift);
    int row = (int)blockIdx.x * j.n_sh_row + at_row;
    if (at_row >= j.n_sh_row || row >= (int)w.n_row) return;
#pragma unroll 1
    for (int u = lane & ((1 << shift) - 1); u < w.n_unit; u += 1 << shift) {
        int at = row * w.n_unit + u;
        bring_near(w.codes + at * 16); /* or near it: forms differ */
        bring_near(w.more + at * 4);
        bring_near(w.sub + at * 2);
        bring_near(w.top + at / 2);
    }
}

/* ---- the chosen experts' hidden rows ---- */

/* A team of warps makes a unit of 32 elements of a pair's hidden row; a warp has two rows of the gate beside two of up
 * at a time, or four of up. A block has one team or more, and makes n_round units with each. Of many pairs there are
 * more teams a block, smaller ones, so that some read while others wait for each other. */
enum { HIDDEN_ROWS = 4, GATED_TEAM = 512, PLAIN_TEAM = 256, PLAIN_TEAMS = 3, MANY_TEAMS = 4 };
static __host__ __device__ constexpr int hidden_team(bool has_gate, bool many) {
    return has_gate && !many ? GATED_TEAM : PLAIN_TEAM;
}
/* How many registers a form takes: 0 to 2. */
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
/* Threads that registers are shared out for. Of few pairs more than there are, so that there is room beside them for a
 * block of down8_kernel. */
static __host__ __device__ constexpr int hidden_bound(int form, bool has_gate, bool many) {
    int weight = hidden_weight(form, many, TAKES_MORE);
    if (!has_gate || many) return PLAIN_TEAM * hidden_teams(form, has_gate, many);
    return GATED_TEAM + (weight == 2 ? 0 : weight == 1 ? 128 : 192);
}

/* A unit of weights times one of activations, added to sum. O4 needs no unpacking: of its values 2 q - 15, sixteen
 * times a lower q and an upper q where it stands add up to eight times what is sought. That starts at the bits of
 * 1.5 * 2^23, and so ends on those of a float. All sums are whole numbers below 2^24: nothing is rounded. */
template <int F>
__device__ __forceinline__ float hidden_dot(const raw<F> &c, const act_unit &a,
                                            const grid_tables &g, float sum) {
    if constexpr (F == FORM_O4) {
        const uint32_t lo[4] = {a.lo.x, a.lo.y, a.lo.z, a.lo.w};
        const uint32_t hi[4] = {a.hi.x, a.hi.y, a.hi.z, a.hi.w};
        int s = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) s = dot4((int)(c.code[i] & 0x0f0f0f0fu), (int)lo[i], s);
        s = 16 * s + 0x4b400000;
#pragma unroll
        for (int i = 0; i < 4; i++) s = dot4_unsigned(c.code[i] & 0xf0f0f0f0u, (int)hi[i], s);
        float f = __int_as_float(s) * 0.125f - (15.0f * (float)pair_sum(a.sums) + 12582912.0f / 8);
        float y = to_float((uint16_t)c.top[0]) * (float)(1u + 2u * c.sub) * f;
        return sum + y * a.scale;
    } else {
        unpacked w;
        unpack<F, true>(c, g, w);
        return unit_dot8<F>(w, a, sum);
    }
}

/* A warp's part of a team. A round of it is ROWS rows of the team's unit, in HALVES of EACH rows of a matrix. A lane has
 * every 32nd unit of a row, HIDDEN_ROWS at a time, which it asks for DEPTH of those steps ahead of their use. Lanes
 * beyond the end of a row read its last unit, and count it as nothing. Indices of units fit 32 bits. */
template <int F, bool HAS_GATE, bool MANY> struct hidden8_warp {
    static constexpr int EACH = HAS_GATE ? HIDDEN_ROWS / 2 : HIDDEN_ROWS;
    static constexpr int TEAM = hidden_team(HAS_GATE, MANY), MAX_TEAMS = MANY_TEAMS;
    static constexpr int ROWS = 32 / (TEAM / 32), HALVES = ROWS / EACH;
    static constexpr int DEPTH = HALVES > 1 ? 1 : 2, N_SUM = HALVES * HIDDEN_ROWS;
    const hidden8_job &j;
    const int32_t *chosen; /* [n_tok * n_used], shared */
    float (*h)[MAX_TEAMS][2][32];
    raw<F> code[DEPTH][HIDDEN_ROWS];
    uint32_t at,
        x_at; /* the lane's first unit of what is asked for: of the weights, of the input */
    int last; /* from there to the last one of a row */

    __device__ __forceinline__ uint32_t unit_of(int round) const {
        return (uint32_t)(round * j.per_round) + threadIdx.x / TEAM * gridDim.x + blockIdx.x;
    }
    /* What is asked for next is the first half of a round. */
    __device__ __forceinline__ void aim(int round) {
        uint32_t u = unit_of(round), last = (uint32_t)j.n_all - 1;
        u = u < last ? u : last;
        uint32_t pair = u / j.per_pair, lane = threadIdx.x % 32;
        int32_t mat = chosen[pair];
        uint32_t row = (uint32_t)(mat < 0 ? 0 : mat) * (uint32_t)j.up.n_row +
                       (u - pair * j.per_pair.n) * 32 + threadIdx.x % TEAM / 32 * ROWS;
        at = row * (uint32_t)j.up.n_unit + lane;
        x_at = pair / j.n_used * (uint32_t)j.up.n_unit + lane;
    }
    /* From a lane's first unit of a row to that of a step, or to the row's last. */
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
            /* an eighth: a shift would become four instructions with the address, this is two */
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
    }
    __device__ __forceinline__ void run(const grid_tables &g) {
        int n_step = (j.up.n_unit + 31) / 32, lane = (int)(threadIdx.x % 32);
        /* where the lane puts the sum that it gets */
        int k = lane / (32 / N_SUM), r = k % HIDDEN_ROWS, warp = (int)(threadIdx.x % TEAM / 32);
        int place = warp * ROWS + k / HIDDEN_ROWS * EACH + r % EACH;
        float *to = &h[0][threadIdx.x / TEAM][r / EACH][place];
#pragma unroll 1
        for (int round = 0; round < j.n_round; round++) {
            uint32_t x = x_at;
            float sum[N_SUM] = {};
#pragma unroll 1
            for (int step = 0; step < n_step; step += DEPTH) {
                int next = step + DEPTH;
                bool more = true;
#pragma unroll
                for (int d = 0; d < DEPTH; d++) {
                    if (d == 0 || step + d < n_step) {
                        act_unit a = act8_load(j.x, x + from_first(step + d));
                        if ((step + d) * 32 > last) a.scale = 0.0f;
#pragma unroll
                        for (int half = 0; half < HALVES; half++) {
                            float *y = sum + half * HIDDEN_ROWS;
#pragma unroll
                            for (int i = 0; i < HIDDEN_ROWS; i++)
                                y[i] = hidden_dot<F>(code[d][i], a, g, y[i]);
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
    /* One of the team's warps rounds the unit while the others go on; two rounds on, its values are read. */
    __device__ __forceinline__ void finish(int round) const {
        int team = (int)(threadIdx.x / TEAM), lane = (int)(threadIdx.x % 32);
        barrier_of(TEAM_BARRIER + team, TEAM);
        if ((int)(threadIdx.x % TEAM / 32) != round % (TEAM / 32)) return;
        uint32_t u = unit_of(round);
        if (u >= (uint32_t)j.n_all) return;
        float y = act_of(j.act, h[round % 2][team][0][lane]);
        if (HAS_GATE) y *= h[round % 2][team][1][lane];
        act8_put(j.hidden, u, chosen[u / j.per_pair] < 0 ? 0.0f : y);
    }
};

/* Every block makes the choice anew, a warp a token; the other warps multiply rows of the shared expert's last matrix
 * meanwhile. The next kernel starts when the choice is written down, and may read the experts' weights ahead of its
 * own wait; the bound on registers leaves room for it. Shared memory: grid points, inputs of the shared expert. */
template <int F, bool HAS_GATE, bool MANY>
__global__ void __launch_bounds__(hidden_bound(F, HAS_GATE, MANY), 1)
    hidden8_kernel(const __grid_constant__ hidden8_job j, grid_tables g) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float h[2][MANY_TEAMS][2][32];
    __shared__ int32_t chosen[STEP_TOKS * MAX_USED];
    threads_fit();
    int warp = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    int n_warp = (int)(blockDim.x / 32), n_used = j.choice.n_used;
    int n_choose = j.n_tok < n_warp / 2 ? j.n_tok : n_warp / 2;
    bool is_clerk =
        blockIdx.x + 1 == gridDim.x; /* writes the choice down; has no rows where they are few */
    bool is_shared = j.sh_down.form != FORM_NONE && warp >= n_choose;
    if (is_shared) shared_near(j, warp - n_choose);
    if (grid_words(F)) grid_load(g, F, points);
    if (lane == 0) {
        look_up(j.choice.logits);
        look_up(j.x.q);
        look_up(j.shared.up);
    }
    wait_previous();
    if (!j.choice.logits)
        for (int i = (int)threadIdx.x; i < j.n_tok * n_used; i += (int)blockDim.x)
            chosen[i] = j.ids[i];
    else if (warp < n_choose)
#pragma unroll 1
        for (int t = warp; t < j.n_tok; t += n_choose) {
            int32_t id = warp_choose<CHOOSE_FEW / 32>(j.choice, t);
            if (lane < n_used) chosen[t * n_used + lane] = id;
            if (!is_clerk || lane >= n_used) continue;
            j.ids[t * n_used + lane] = id;
            __threadfence();
        }
    if (is_shared) shared_down8(j, 4 * grid_words(F), warp - n_choose, n_warp - n_choose);
    __syncthreads();
    launch_next();
    hidden8_warp<F, HAS_GATE, MANY> mine = {j, chosen, h};
    mine.begin();
    if (j.choice.logits && is_clerk)
#pragma unroll 1
        for (int t = (int)(threadIdx.x / 32); t < j.n_tok; t += (int)(blockDim.x / 32)) {
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
                  const choice_job &choice, int32_t *ids, float *weights, const glu_job &shared,
                  const float *sh_weight, const act8 &hidden) {
    int64_t n_ff = e.up.n_row;
    hidden8_job h = {};
    h.gate = e.gate, h.up = e.up, h.choice = choice, h.ids = ids, h.weights = weights;
    h.n_tok = a->n_tok, h.act = e.act, h.hidden = hidden;
    h.per_pair = divisor_of(n_ff / 32), h.n_used = divisor_of(a->n_used);
    h.x = cuda_act8(c, a->x, a->up->n_in, a->n_tok, a->up->n_in);
    /* a block a multiprocessor, with as many teams as let a round do */
    int32_t units = (int32_t)(a->n_tok * a->n_used * (n_ff / 32));
    int32_t teams = (units + c->n_sm - 1) / c->n_sm;
    bool is_many = e.has_gate && teams > 2;
    int32_t most = hidden_teams(e.up.form, e.has_gate, is_many, c->compute >= 100);
    teams = teams < most ? teams : most;
    h.n_round = (units + teams * c->n_sm - 1) / (teams * c->n_sm);
    dim3 grid((unsigned)(units < c->n_sm ? units + 1 : c->n_sm)); /* one to write the choice down */
    h.n_all = units, h.per_round = teams * (int32_t)grid.x;
    dim3 block((unsigned)(teams * hidden_team(e.has_gate, is_many)));
    size_t room = grid_bytes(c, e.up.form);
    bool apart = a->sh_down && !is_shared_form(planes_of(a->sh_down).form);
    if (a->sh_down && !apart) {
        h.sh_down = planes_of(a->sh_down);
        h.sh_quads = divisor_of(h.sh_down.n_in / 4);
        h.shared = shared, h.sh_weight = sh_weight, h.out = a->out;
        h.n_sh_row = (int32_t)((h.sh_down.n_row + grid.x - 1) / grid.x);
        int32_t most_tok = a->n_tok < VEC8_TOKS ? a->n_tok : VEC8_TOKS;
        room += (size_t)(most_tok * shared_input(h.sh_down.n_in));
    }
    switch (e.up.form) {
#define X(F)                                                                                       \
    case F: hidden_launch<F>(c, e.has_gate, is_many, grid, block, room, h); break;
        FOR_EACH_FORM(X)
#undef X
    }
    return apart;
}
