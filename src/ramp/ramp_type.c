/* ramp_type.c: see ramp_type.h. */
#include "ramp/ramp_type.h"

#include <stddef.h>

#include "base/str.h"
#include "format/quant.h"

/* Omitted are types that are worse than another type of no greater size on every tensor tried (docs/ramp.md): q4_0
 * q4_1 q5_0 q5_1 against iq4_xs, q4_K and q5_K. mxfp4 is omitted too: it is for weights trained in it. */
static const uint32_t portable_256[] = {
    QUANT_IQ1_S, QUANT_IQ1_M,   QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S,
    QUANT_Q2_K,  QUANT_IQ3_XXS, QUANT_IQ3_S,   QUANT_Q3_K,   QUANT_IQ4_XS,
    QUANT_Q4_K,  QUANT_Q5_K,    QUANT_Q6_K,    QUANT_Q8_0,   RAMP_NO_TYPE,
};
static const uint32_t chimere_256[] = {
    QUANT_IQ1_S,  QUANT_IQ1_M,  QUANT_IQ2_XXS, QUANT_IQ2_XS,  QUANT_IQ2_KS, QUANT_IQ2_S,
    QUANT_IQ2_KL, QUANT_Q2_K,   QUANT_IQ2_K,   QUANT_IQ3_XXS, QUANT_IQ3_KS, QUANT_IQ3_S,
    QUANT_IQ3_K,  QUANT_Q3_K,   QUANT_IQ4_KSS, QUANT_IQ4_XS,  QUANT_IQ4_KS, QUANT_IQ4_K,
    QUANT_Q4_K,   QUANT_IQ5_KS, QUANT_Q5_K,    QUANT_IQ5_K,   QUANT_Q6_K,   QUANT_IQ6_K,
    QUANT_Q8_0,   RAMP_NO_TYPE,
};
/* Rows that are divided: the types above with a tail (quantize_mix.h), and those that hold whole rows. */
static const uint32_t divided[] = {
    QUANT_IQ1_S,  QUANT_IQ1_M,  QUANT_IQ2_XXS, QUANT_IQ2_XS,  QUANT_IQ2_KS, QUANT_IQ2_S,
    QUANT_IQ2_KL, QUANT_Q2_K,   QUANT_IQ2_K,   QUANT_IQ3_XXS, QUANT_IQ3_KS, QUANT_IQ3_S,
    QUANT_IQ3_K,  QUANT_Q3_K,   QUANT_IQ4_KSS, QUANT_IQ4_XS,  QUANT_IQ4_KS, QUANT_IQ4_K,
    QUANT_Q4_K,   QUANT_IQ5_KS, QUANT_Q5_K,    QUANT_IQ5_K,   QUANT_Q6_K,   QUANT_IQ6_K,
    QUANT_IQ4_NL, QUANT_Q5_1,   QUANT_Q8_0,    QUANT_F16,     RAMP_NO_TYPE,
};
static const uint32_t blocks_of_32[] = {
    QUANT_MXFP4, QUANT_IQ4_NL, QUANT_Q4_0, QUANT_Q4_1,   QUANT_Q5_0,
    QUANT_Q5_1,  QUANT_Q8_0,   QUANT_F16,  RAMP_NO_TYPE,
};

const uint32_t *ramp_types(enum ramp_mode mode, uint64_t n_in) {
    if (n_in % 256) return mode == RAMP_CHIMERE && n_in > 256 ? divided : blocks_of_32;
    return mode == RAMP_CHIMERE ? chimere_256 : portable_256;
}

static const struct ramp_card cards[] = {
    {"rtx-3060-12g", 11.5, 360e9, 28, 1777e6, 2048},
    {"rtx-3090-24g", 23.3, 936e9, 82, 1695e6, 2048},
    {"rtx-4060-8g", 7.5, 272e9, 24, 2460e6, 2048},
    {"rtx-4060-ti-16g", 15.4, 288e9, 34, 2535e6, 2048},
    {"rtx-4070-12g", 11.5, 504e9, 46, 2475e6, 2048},
    {"rtx-4080-16g", 15.4, 717e9, 76, 2505e6, 2048},
    {"rtx-4090-24g", 23.3, 1008e9, 128, 2520e6, 2048},
    {"rtx-5060-8g", 7.5, 448e9, 30, 2497e6, 2048},
    {"rtx-5060-ti-16g", 15.4, 448e9, 36, 2572e6, 2048},
    {"rtx-5070-12g", 11.5, 672e9, 48, 2512e6, 2048},
    {"rtx-5070-ti-16g", 15.4, 896e9, 70, 2452e6, 2048},
    {"rtx-5080-16g", 15.4, 960e9, 84, 2617e6, 2048},
    {"rtx-5090-32g", 31.2, 1792e9, 170, 2407e6, 2048},
    {"l4-24g", 22.0, 300e9, 58, 2040e6, 2048},
    {"a100-40g", 39.0, 1555e9, 108, 1410e6, 4096},
    {"a100-80g", 79.0, 2039e9, 108, 1410e6, 4096},
    {"h100-80g", 78.0, 3350e9, 132, 1980e6, 8192},
    {"h200-141g", 139.0, 4800e9, 132, 1980e6, 8192},
};

const struct ramp_card *ramp_card_find(const char *name) {
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (str_eq_nocase(cards[i].name, name)) return &cards[i];
    return NULL;
}

const char *ramp_card_name(int i) {
    return i >= 0 && (size_t)i < sizeof cards / sizeof *cards ? cards[i].name : NULL;
}

/* Types that the device reads in a wider form, and its bits per weight (kernels/cuda/repack.h). */
static const struct {
    uint32_t type;
    double bits;
} wide[] = {
    {QUANT_IQ1_S, 10},     {QUANT_IQ1_M, 10},      {QUANT_TQ1_0, 10},     {QUANT_TQ2_0, 10},
    {QUANT_IQ2_KL, 3.375}, {QUANT_IQ4_KSS, 4.375}, {QUANT_IQ1_KT, 2.375}, {QUANT_IQ2_KT, 2.375},
    {QUANT_IQ3_KT, 3.375}, {QUANT_IQ4_KT, 4.375},
};

/* What products of one row with 134 million weights read on an H200, GB of the file per second (docs/ramp.md). */
#define H200_CLOCKS (132 * 1980e6) /* multiprocessors times Hz */
static const struct {
    uint32_t type;
    double gb_s;
} on_h200[] = {
    {QUANT_Q8_0, 2956},    {QUANT_Q6_K, 2698},    {QUANT_IQ6_K, 1969},  {QUANT_Q5_K, 2542},
    {QUANT_IQ5_K, 1603},   {QUANT_IQ5_KS, 1691},  {QUANT_Q4_K, 2270},   {QUANT_IQ4_K, 1587},
    {QUANT_IQ4_KS, 1620},  {QUANT_IQ4_KSS, 1605}, {QUANT_IQ4_XS, 1563}, {QUANT_IQ4_KT, 1466},
    {QUANT_Q3_K, 1621},    {QUANT_IQ3_S, 2164},   {QUANT_IQ3_K, 1611},  {QUANT_IQ3_KS, 1604},
    {QUANT_IQ3_XXS, 1015}, {QUANT_IQ3_KT, 786},   {QUANT_IQ2_KL, 1612}, {QUANT_Q2_K, 1337},
    {QUANT_IQ2_K, 1212},   {QUANT_IQ2_KS, 1312},  {QUANT_IQ2_XXS, 736}, {QUANT_IQ2_KT, 863},
    {QUANT_IQ1_KT, 871},   {QUANT_IQ2_XS, 845},   {QUANT_IQ2_S, 909},   {QUANT_IQ1_S, 498},
    {QUANT_IQ1_M, 557},
};

double ramp_type_speed(const struct ramp_card *card, uint32_t type) {
    const struct quant_traits *t = quant_traits(type);
    double bits = (double)t->block_bytes * 8 / (double)t->block_elements, device = bits,
           gb_s = on_h200[0].gb_s;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (wide[i].type == type) device = wide[i].bits;
    for (size_t i = 0; i < sizeof on_h200 / sizeof *on_h200; i++)
        if (on_h200[i].type == type) gb_s = on_h200[i].gb_s;
    double memory = RAMP_BANDWIDTH * card->bandwidth * bits / device,
           work = gb_s * 1e9 / H200_CLOCKS * card->n_sm * card->clock;
    return work < memory ? work : memory;
}

/* Processor time on one core of a Zen 3, rounded (docs/ramp.md): of the encoder, and of rounding by correlation after
 * it. */
double ramp_type_cost(uint32_t type, bool correlated) {
    static const struct {
        uint32_t type;
        double ns, more;
    } costs[] = {
        {QUANT_Q8_0, 5, 0},       {QUANT_IQ1_S, 85, 0},      {QUANT_IQ1_M, 105, 0},
        {QUANT_IQ2_XXS, 70, 760}, {QUANT_IQ2_XS, 70, 760},   {QUANT_IQ2_S, 65, 750},
        {QUANT_Q2_K, 80, 110},    {QUANT_IQ3_XXS, 90, 760},  {QUANT_IQ3_S, 80, 490},
        {QUANT_Q3_K, 40, 125},    {QUANT_IQ4_XS, 75, 125},   {QUANT_IQ2_KS, 80, 100},
        {QUANT_IQ2_K, 100, 100},  {QUANT_IQ2_KL, 180, 800},  {QUANT_IQ3_KS, 120, 100},
        {QUANT_IQ3_K, 150, 100},  {QUANT_IQ4_KSS, 170, 600}, {QUANT_IQ4_KS, 170, 150},
        {QUANT_IQ4_K, 170, 180},  {QUANT_IQ5_KS, 240, 300},  {QUANT_IQ5_K, 240, 300},
        {QUANT_IQ6_K, 360, 850},  {QUANT_Q5_K, 45, 150},     {QUANT_Q6_K, 35, 280},
    };
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (costs[i].type == type) return (costs[i].ns + (correlated ? costs[i].more : 0)) * 1e-9;
    return (correlated ? 150e-9 : 50e-9);
}
