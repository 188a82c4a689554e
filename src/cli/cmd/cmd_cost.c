/* cmd_cost.c: the cost of electricity of a day of requests. Speed and energy are measured here, given by options,
 * or modelled for a card; the output states the origin of each. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/energy.h"
#include "base/str.h"
#include "cli/args/price_args.h"
#include "cli/args/bench_args.h"
#include "cli/cli.h"
#include "cli/args/model_args.h"
#include "ramp/ramp_type.h"

/* Power under load as a share of the board's power: 129 of 180 W were measured on an RTX 5060 Ti with one sequence
 * (peers.first.watts of bench/results). Idle power and the ratio of prefill to decode are rough assumptions, and
 * are printed as such. */
#define CARD_LOADED 0.72
#define CARD_IDLE 0.10
#define CARD_PREFILL 25
#define CPU_WATTS 65
#define CPU_IDLE_WATTS 15
#define DAY_S 86400.0

const struct cfg_opt cost_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    BENCH_OPTIONS,
    {"price", 0, CFG_STR, "P", "0.25/kWh", 0, 0, NULL, "price of a kilowatt-hour, in any currency"},
    {"requests", 0, CFG_INT, "N", "2000", 1, 1 << 30, NULL,
     "requests per day, each of --prompt and --gen tokens"},
    {"card", 0, CFG_STR, "NAME", NULL, 0, 0, NULL,
     "model a card instead of measuring here, e.g. rtx-5060-ti-16g"},
    {"bytes-per-token", 0, CFG_BYTES, "SIZE", "2060000000", 0, 0, NULL,
     "with --card: bytes read per token (default: those of a 35B mixture of experts at 3.6 bits)"},
    {"share", 0, CFG_FLOAT, "X", "0.5", 0.01, 1, NULL,
     "with --card: share of the bandwidth that decoding reaches"},
    {"speed", 0, CFG_FLOAT, "N", NULL, 1e-3, 1e9, NULL, "decode speed, tokens per second"},
    {"prefill-speed", 0, CFG_FLOAT, "N", NULL, 1e-3, 1e9, NULL, "prefill speed, tokens per second"},
    {"watts", 0, CFG_FLOAT, "W", NULL, 0, 1e6, NULL, "power while computing"},
    {"idle-watts", 0, CFG_FLOAT, "W", NULL, 0, 1e6, NULL, "power while idle"},
    {"machine-watts", 0, CFG_FLOAT, "W", "0", 0, 1e6, NULL,
     "power of the rest of the machine, all day"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print a JSON object"},
    {0}};

static const struct {
    const char *name;
    double watts; /* of the board, as stated by its vendor */
} boards[] = {
    {"rtx-3060-12g", 170},    {"rtx-3090-24g", 350}, {"rtx-4060-8g", 115},
    {"rtx-4060-ti-16g", 165}, {"rtx-4070-12g", 200}, {"rtx-4080-16g", 320},
    {"rtx-4090-24g", 450},    {"rtx-5060-8g", 145},  {"rtx-5060-ti-16g", 180},
    {"rtx-5070-12g", 250},    {"rtx-5080-16g", 360}, {"rtx-5070-ti-16g", 300},
    {"rtx-5090-32g", 575},    {"l4-24g", 72},        {"a100-40g", 400},
    {"a100-80g", 400},        {"h100-80g", 700},     {"h200-141g", 700},
};

struct cost {
    double n_request, n_prompt, n_answer, price, machine_w;
    double prefill, decode;     /* tokens per second */
    double prefill_j, decode_j; /* per token */
    double idle_w;
    char speed_from[256], energy_from[256], idle_from[256];
    /* per day */
    double busy_s, busy_kwh, idle_kwh, rest_kwh;
};

static double board_watts(const char *name) {
    for (size_t i = 0; i < sizeof boards / sizeof *boards; i++)
        if (str_eq_nocase(boards[i].name, name)) return boards[i].watts;
    return NAN;
}

static int model_card(struct cost *k, const struct cfg *c, struct err *e) {
    const char *name = cfg_str(c, "card");
    const struct ramp_card *card = ramp_card_find(name);
    double watts = card ? board_watts(name) : NAN, share = cfg_float(c, "share");
    double bytes = (double)cfg_bytes(c, "bytes-per-token");
    if (!card || !isfinite(watts)) {
        err_set(e, CHIMERE_ENOENT, "--card: no card named '%.60s'", name);
        err_hint(e, "one of the names of ramp --card, such as rtx-5060-ti-16g or h100-80g");
        return CHIMERE_ENOENT;
    }
    k->decode = share * card->bandwidth / bytes;
    k->prefill = CARD_PREFILL * k->decode;
    k->decode_j = CARD_LOADED * watts / k->decode;
    k->prefill_j = CARD_LOADED * watts / k->prefill;
    k->idle_w = CARD_IDLE * watts;
    snprintf(k->speed_from, sizeof k->speed_from,
             "modelled: %.0f %% of %.0f GB/s by %.3g GB per token; prefill %d times decode",
             100 * share, card->bandwidth * 1e-9, bytes * 1e-9, CARD_PREFILL);
    snprintf(k->energy_from, sizeof k->energy_from,
             "modelled: %.0f %% of the board's %.0f W, without the rest of the machine",
             100 * CARD_LOADED, watts);
    snprintf(k->idle_from, sizeof k->idle_from, "assumed: %.0f %% of the board's power",
             100 * CARD_IDLE);
    return 0;
}

static double row_real(const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Takes prefill and the first row of decoding as bench measures them. */
static int measure(struct cost *k, const struct cfg *c, struct err *e) {
    json_t *rows = json_array(), *row;
    size_t i;
    int rc = rows ? bench_rows(c, rows, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    k->idle_w = k->prefill_j = k->decode_j = NAN;
    json_array_foreach(rows, i, row) {
        bool is_decode = !strcmp(json_string_value(json_object_get(row, "test")), "decode");
        double *speed = is_decode ? &k->decode : &k->prefill;
        double *joules = is_decode ? &k->decode_j : &k->prefill_j;
        if (*speed > 0) continue;
        *speed = row_real(row, "tok_s");
        *joules = row_real(row, "joules_per_tok");
        k->idle_w = row_real(row, "idle_watts");
        snprintf(k->speed_from, sizeof k->speed_from, "measured here: bench of %.100s",
                 json_string_value(json_object_get(row, "model")));
    }
    json_decref(rows);
    energy_about(k->energy_from, sizeof k->energy_from);
    /* a card's counter moves ten times per second: a short prefill may end between two readings */
    if (k->prefill_j == 0 && k->decode_j > 0 && k->prefill > 0) {
        k->prefill_j = k->decode_j * k->decode / k->prefill;
        size_t n = strlen(k->energy_from);
        snprintf(k->energy_from + n, sizeof k->energy_from - n,
                 "; prefill was too short to measure: counted with the power of decoding");
    }
    if (rc) return rc;
    if (isfinite(k->decode_j) || isfinite(k->prefill_j)) {
        char about[128];
        snprintf(about, sizeof about, "%.100s", k->energy_from);
        snprintf(k->energy_from, sizeof k->energy_from, "measured here: %s", about);
        snprintf(k->idle_from, sizeof k->idle_from, "measured here, half a second");
        return 0;
    }
    char why[160];
    snprintf(why, sizeof why, "%.150s", k->energy_from);
    snprintf(k->energy_from, sizeof k->energy_from, "assumed: %d W (%s)", CPU_WATTS, why);
    snprintf(k->idle_from, sizeof k->idle_from, "assumed");
    k->decode_j = CPU_WATTS / k->decode;
    k->prefill_j = CPU_WATTS / k->prefill;
    k->idle_w = CPU_IDLE_WATTS;
    return 0;
}

/* Values given by the user replace measured or modelled ones. */
static void take_given(struct cost *k, const struct cfg *c) {
    double watts = cfg_is_set(c, "watts") ? cfg_float(c, "watts") : NAN;
    bool has_speed = cfg_is_set(c, "speed"), has_prefill = cfg_is_set(c, "prefill-speed");
    double decode_w = k->decode_j * k->decode, prefill_w = k->prefill_j * k->prefill;
    if (has_speed) k->decode = cfg_float(c, "speed");
    if (has_prefill) k->prefill = cfg_float(c, "prefill-speed");
    if (has_speed && has_prefill) snprintf(k->speed_from, sizeof k->speed_from, "given");
    if (isfinite(watts)) snprintf(k->energy_from, sizeof k->energy_from, "given: %g W", watts);
    if (isfinite(watts)) decode_w = prefill_w = watts;
    k->decode_j = decode_w / k->decode;
    k->prefill_j = prefill_w / k->prefill;
    if (!cfg_is_set(c, "idle-watts")) return;
    k->idle_w = cfg_float(c, "idle-watts");
    snprintf(k->idle_from, sizeof k->idle_from, "given");
}

static int compute(struct cost *k, struct err *e) {
    double prompt = k->n_request * k->n_prompt, answer = k->n_request * k->n_answer;
    /* a test of 0 tokens was not measured and costs nothing */
    k->busy_s = (prompt > 0 ? prompt / k->prefill : 0) + (answer > 0 ? answer / k->decode : 0);
    double joules =
        (prompt > 0 ? prompt * k->prefill_j : 0) + (answer > 0 ? answer * k->decode_j : 0);
    if (!(k->busy_s <= DAY_S))
        return err_set(e, CHIMERE_ELIMIT,
                       "%.0f requests take %.1f hours at this speed, a day has 24", k->n_request,
                       k->busy_s / 3600);
    k->busy_kwh = joules / 3.6e6;
    k->idle_kwh = (DAY_S - k->busy_s) * k->idle_w / 3.6e6;
    k->rest_kwh = DAY_S * k->machine_w / 3.6e6;
    return 0;
}

static json_t *as_json(const struct cost *k) {
    double kwh = k->busy_kwh + k->idle_kwh + k->rest_kwh;
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s,s:s,s:s}",
                     "requests", k->n_request, "prompt_tokens", k->n_prompt, "answer_tokens",
                     k->n_answer, "prefill_tok_s", k->prefill, "decode_tok_s", k->decode,
                     "joules_per_prompt_token", k->prefill_j, "joules_per_answer_token",
                     k->decode_j, "idle_watts", k->idle_w, "busy_hours", k->busy_s / 3600,
                     "busy_kwh", k->busy_kwh, "idle_kwh", k->idle_kwh, "rest_kwh", k->rest_kwh,
                     "kwh", kwh, "cost_per_day", kwh * k->price, "cost_per_request",
                     kwh * k->price / k->n_request, "speed_from", k->speed_from, "energy_from",
                     k->energy_from, "idle_from", k->idle_from);
}

static void print_text(const struct cost *k) {
    double kwh = k->busy_kwh + k->idle_kwh + k->rest_kwh, cost = kwh * k->price;
    printf("%.0f requests per day, each of %.0f prompt and %.0f answer tokens\n\n", k->n_request,
           k->n_prompt, k->n_answer);
    printf("speed    prefill %.4g, decode %.4g tokens per second\n         %s\n", k->prefill,
           k->decode, k->speed_from);
    printf("energy   %.3g J per prompt token, %.3g J per answer token\n         %s\n", k->prefill_j,
           k->decode_j, k->energy_from);
    printf("idle     %.3g W for %.2f hours\n         %s\n", k->idle_w, 24 - k->busy_s / 3600,
           k->idle_from);
    printf("rest     %.3g W for 24 hours\n         %s\n\n", k->machine_w,
           k->machine_w > 0 ? "given" : "screen, disks, losses of the supply: not counted");
    printf("busy     %.2f hours\n", k->busy_s / 3600);
    printf("used     %.4g kWh: %.3g busy, %.3g idle, %.3g rest\n", kwh, k->busy_kwh, k->idle_kwh,
           k->rest_kwh);
    printf("cost     %.4g per day at %g per kWh, %.3g per request, %.4g per year\n", cost, k->price,
           cost / k->n_request, 365 * cost);
}

static int cost_run(struct cost *k, const struct cfg *c, struct err *e) {
    bool is_given = cfg_is_set(c, "watts") && cfg_is_set(c, "speed") &&
                    cfg_is_set(c, "prefill-speed") && cfg_is_set(c, "idle-watts");
    int rc = price_args_read("price", cfg_str(c, "price"), &k->price, NULL, e);
    k->n_request = (double)cfg_int(c, "requests");
    k->n_prompt = (double)cfg_int(c, "prompt");
    k->n_answer = (double)cfg_int(c, "gen");
    k->machine_w = cfg_float(c, "machine-watts");
    if (!rc && !is_given) rc = cfg_str(c, "card") ? model_card(k, c, e) : measure(k, c, e);
    if (!rc) take_given(k, c);
    return rc ? rc : compute(k, e);
}

int cmd_cost(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, cost_options,
                   "usage: chimere cost [-m FILE] [--price 0.25/kWh] [--requests N] [-p N] [-n N]\n"
                   "       chimere cost --card NAME [--bytes-per-token SIZE] [--share X]\n"
                   "       chimere cost --watts W --idle-watts W --speed N --prefill-speed N",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    struct cost k = {0};
    int rc = cost_run(&k, c, &e);
    if (!rc && cfg_bool(c, "json")) {
        json_t *o = as_json(&k);
        json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
        putchar('\n');
        json_decref(o);
    } else if (!rc) {
        print_text(&k);
    }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
