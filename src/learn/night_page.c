/* night_page.c: see night_page.h. Texts of the record are escaped; figures are inline SVG. */
#include "learn/night_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 640, LEFT = 150, RIGHT = 20, ROW = 26, MAX_CURVE = 60 };

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#1d2733;--dim:#66707c;--line:#d7dce2;--good:#1a7f4b;--bad:#b3372f;"
    "--bar:#8fa3b8;--paper:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#9aa4b0;--line:#39424d;--good:#"
    "4cc38a;"
    "--bad:#f0766d;--bar:#5d7186;--paper:#14181d}}"
    "body{font:16px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:44rem;"
    "margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}"
    ".dim{color:var(--dim)}.good{color:var(--good)}.bad{color:var(--bad)}svg{width:100%;height:"
    "auto}"
    "svg text{fill:var(--ink);font:12px system-ui,sans-serif}";

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static const char nats[] = "nats per token"; /* the unit, if a record states none */

static const char *unit_of(const json_t *target) {
    const char *unit = text_of(target, "unit");
    return *unit ? unit : nats;
}

/* A figure of a step in percent of what it was before: steps have different units. */
static double share(const json_t *target, const char *key) {
    double before = real(target, "before");
    return before > 0 ? 100 * real(target, key) / before : 0;
}

static void put_text(struct buf *b, const char *s) {
    for (; *s; ++s) {
        if (*s == '<') buf_puts(b, "&lt;");
        else if (*s == '&') buf_puts(b, "&amp;");
        else if (*s == '"') buf_puts(b, "&quot;");
        else buf_putc(b, *s);
    }
}

static void put_label(struct buf *b, double y, const char *label) {
    buf_printf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 10, y + 4);
    put_text(b, label);
    buf_puts(b, "</text>");
}

static void begin_picture(struct buf *b, int height, const char *what) {
    buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>%s</title>\n", WIDTH, height,
               what);
}

/* ---- gain of each step on its held-out answers ---- */

static void put_interval(struct buf *b, double y, double scale, const json_t *step) {
    const json_t *t = json_object_get(step, "target");
    double middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
           unit = (WIDTH - LEFT - RIGHT) / 2.0 / scale;
    const char *colour = real(t, "low") > 0    ? "var(--good)"
                         : real(t, "high") < 0 ? "var(--bad)"
                                               : "var(--bar)";
    put_label(b, y, text_of(step, "name"));
    if (!t) return;
    buf_printf(b,
               "<path d=\"M%.1f %.1fH%.1f\" stroke=\"%s\" stroke-width=\"3\"/><circle cx=\"%.1f\" "
               "cy=\"%.1f\" r=\"5\" "
               "fill=\"%s\"/>\n",
               middle + unit * share(t, "low"), y, middle + unit * share(t, "high"), colour,
               middle + unit * share(t, "gain"), y, colour);
}

static void put_steps(struct buf *b, const json_t *steps) {
    double scale = 1e-9;
    size_t i;
    json_t *step;
    json_array_foreach(steps, i, step) {
        const json_t *t = json_object_get(step, "target");
        scale = fmax(scale, fmax(fabs(share(t, "low")), fabs(share(t, "high"))));
    }
    int height = ROW * ((int)json_array_size(steps) + 1);
    begin_picture(b, height, "Gain of each step, in percent, with 95 % intervals");
    double middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    buf_printf(b, "<path d=\"M%.1f 0V%d\" stroke=\"var(--line)\"/>", middle, height - ROW);
    json_array_foreach(steps, i, step) put_interval(b, ROW * ((double)i + 0.5), scale, step);
    buf_printf(b,
               "<text x=\"%d\" y=\"%d\">worse by %.3g %%</text><text x=\"%d\" y=\"%d\" "
               "text-anchor=\"end\">better by %.3g "
               "%%</text></svg>\n<ul>",
               LEFT, height - 6, scale, WIDTH - RIGHT, height - 6, scale);
    json_array_foreach(steps, i, step) {
        const json_t *t = json_object_get(step, "target");
        bool promoted = json_is_true(json_object_get(step, "promoted"));
        buf_printf(b, "<li><b class=\"%s\">%s</b> <b>", promoted ? "good" : "dim",
                   promoted                       ? "promoted"
                   : json_object_get(step, "did") ? "done"
                                                  : "refused");
        put_text(b, text_of(step, "name"));
        if (*text_of(step, "pipeline")) {
            buf_puts(b, " for the pipeline ");
            put_text(b, text_of(step, "pipeline"));
        }
        buf_puts(b, "</b>: ");
        put_text(b, text_of(step, "about"));
        if (t)
            buf_printf(b, ". %.4f to %.4f %s on %.0f held-out answers", real(t, "before"),
                       real(t, "after"), unit_of(t), real(t, "n"));
        if (*text_of(step, "did")) {
            buf_puts(b, ": ");
            put_text(b, text_of(step, "did"));
        }
        if (!promoted && *text_of(step, "why")) {
            buf_puts(b, ". Why not: ");
            put_text(b, text_of(step, "why"));
        }
        buf_puts(b, ".</li>");
    }
    buf_puts(b, "</ul>\n");
}

/* ---- the general suites ---- */

static void put_suite(struct buf *b, double y, const json_t *row) {
    double unit = WIDTH - LEFT - RIGHT - 90, a = real(row, "a"), now = real(row, "b");
    put_label(b, y, text_of(row, "skill"));
    buf_printf(b,
               "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"7\" fill=\"var(--bar)\"/><rect "
               "x=\"%d\" y=\"%.1f\" "
               "width=\"%.1f\" height=\"7\" fill=\"%s\"/><text x=\"%d\" y=\"%.1f\" "
               "text-anchor=\"end\">%.0f to %.0f "
               "%%</text>\n",
               LEFT, y - 8, unit * a, LEFT, y, unit * now,
               now < a && real(row, "p") < 0.10 ? "var(--bad)" : "var(--good)", WIDTH - RIGHT,
               y + 4, 100 * a, 100 * now);
}

static void put_gate(struct buf *b, const json_t *gate) {
    const json_t *skills = json_object_get(gate, "skills"), *total = json_object_get(gate, "total");
    size_t i;
    json_t *row;
    if (!total) {
        buf_puts(b, "<p class=\"dim\">Nothing gained on its own answers, so the general suites "
                    "were not asked.</p>\n");
        return;
    }
    buf_printf(b,
               "<p>%.0f items: %.1f %% right before, %.1f %% with what was proposed (p %.3f). A "
               "skill that falls with "
               "p &lt; 0.10 refuses a promotion.</p>\n",
               real(total, "n"), 100 * real(total, "a"), 100 * real(total, "b"), real(total, "p"));
    begin_picture(b, ROW * (int)json_array_size(skills), "General suites before and after");
    json_array_foreach(skills, i, row) put_suite(b, ROW * ((double)i + 0.5), row);
    buf_puts(b, "</svg>\n");
}

/* The trial by a share of the conversations. */
static void put_canary(struct buf *b, const json_t *canary) {
    if (!canary) return;
    const json_t *trial = json_object_get(canary, "trial"),
                 *now = json_object_get(canary, "current");
    buf_printf(b, "<h2>Trial</h2>\n<p>%.3g %% of the conversations: ", 100 * real(canary, "share"));
    put_text(b, text_of(canary, "result"));
    if (trial)
        buf_printf(
            b, ". Users rejected %.0f of %.0f rated answers, of the version before %.0f of %.0f",
            real(trial, "bad"), real(trial, "rated"), real(now, "bad"), real(now, "rated"));
    buf_puts(b, ".</p>\n");
}

/* ---- all nights ---- */

/* Draws the sum of the gains of promoted steps, night by night. */
static void put_curve(struct buf *b, const struct nights *n, int64_t last) {
    double sum[MAX_CURVE] = {0}, most = 1e-9, total = 0;
    int64_t first = last > MAX_CURVE ? last - MAX_CURVE + 1 : 1;
    int n_point = 0;
    for (int64_t k = first; k <= last; ++k) {
        json_t *r = NULL, *step;
        size_t i;
        if (nights_read(n, k, &r, NULL)) continue;
        json_array_foreach(json_object_get(r, "steps"), i,
                           step) if (json_is_true(json_object_get(step, "promoted")) &&
                                     !strcmp(unit_of(json_object_get(step, "target")), nats))
            total += real(json_object_get(step, "target"), "gain");
        json_decref(r);
        sum[n_point++] = total;
        most = fmax(most, total);
    }
    if (n_point < 2) return;
    buf_puts(b, "<h2>Over the nights</h2>\n");
    begin_picture(b, 160, "Gains of promoted steps, added up");
    buf_puts(b, "<path fill=\"none\" stroke=\"var(--good)\" stroke-width=\"2\" d=\"");
    for (int i = 0; i < n_point; ++i)
        buf_printf(b, "%s%.1f %.1f", i ? "L" : "M", 40 + (WIDTH - 60.0) * i / (n_point - 1),
                   130 - 110 * sum[i] / most);
    buf_printf(b,
               "\"/><text x=\"40\" y=\"152\">night %lld</text><text x=\"%d\" y=\"152\" "
               "text-anchor=\"end\">night %lld: "
               "%.3g nats per token gained in all</text></svg>\n",
               (long long)first, WIDTH - RIGHT, (long long)last, total);
}

void night_energy_text(const json_t *record, char *out, size_t n) {
    const json_t *price = json_object_get(record, "price");
    double kwh = real(record, "joules") / 3.6e6, each = real(price, "per_kwh");
    const char *currency = text_of(price, "currency"), *gap = *currency ? " " : "";
    *out = 0;
    if (!json_object_get(record, "joules")) return;
    if (price)
        snprintf(out, n, "%.3g kWh, %.3g%s%s at %.4g%s%s per kWh", kwh, kwh * each, gap, currency,
                 each, gap, currency);
    else snprintf(out, n, "%.3g kWh", kwh);
}

void night_judge_text(const json_t *record, char *out, size_t n) {
    const json_t *judge = json_object_get(record, "judge");
    const char *name = text_of(judge, "name"), *why = text_of(judge, "why");
    size_t k = 0;
    *out = 0;
    if (!judge) return;
    if (*name) {
        k += (size_t)snprintf(out, n, "%.80s scored %.0f answers", name, real(judge, "judged"));
        if (json_object_get(judge, "auc"))
            k += (size_t)snprintf(
                out + k, n - k,
                "; in %.0f %% of the pairs of %.0f accepted and %.0f rejected answers, it prefers "
                "the accepted one",
                100 * real(judge, "auc"), real(judge, "accepted"), real(judge, "rejected"));
        else k += (size_t)snprintf(out + k, n - k, "; users rated too few to compare with");
    }
    if (json_is_true(json_object_get(judge, "refused")))
        k += (size_t)snprintf(out + k, n - k, "; this is too seldom, so it judged no others");
    if (*why) snprintf(out + k, n - k, "%s%s", k ? "; " : "not used: ", why);
}

void night_hostile_text(const json_t *record, char *out, size_t n) {
    const json_t *hostile = json_object_get(record, "hostile");
    const json_t *held = json_object_get(record, "held_back"), *o = hostile ? hostile : held;
    *out = 0;
    if (!o) return;
    snprintf(out, n,
             "users reversed %.0f of %.0f verdicts (p %.2g on an honest day, limit %.2g): %s",
             real(o, "reversed"), real(o, "questions"), real(o, "p"), real(o, "limit"),
             hostile ? "nothing of this day is learned"
                     : "held back, and tested again in the next night with more ratings");
}

void night_drafter_text(const json_t *record, char *out, size_t n) {
    const json_t *drafter = json_object_get(record, "drafter");
    *out = 0;
    if (drafter)
        snprintf(out, n, "%.128s stays as it is: training it needs gradients (train/dflash)",
                 text_of(drafter, "file"));
}

static void put_lines(struct buf *b, const json_t *r) {
    void (*const texts[])(const json_t *, char *, size_t) = {night_hostile_text, night_judge_text,
                                                             night_drafter_text};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[1024];
        texts[i](r, text, sizeof text);
        if (!*text) continue;
        buf_puts(b, "<p>");
        put_text(b, text);
        buf_puts(b, ".</p>\n");
    }
}

static void put_energy(struct buf *b, const json_t *r) {
    char text[128];
    night_energy_text(r, text, sizeof text);
    if (!*text) return;
    buf_puts(b, "<p>Energy of the whole machine: ");
    put_text(b, text);
    buf_puts(b, ".");
    const json_t *stopped = json_object_get(r, "stopped");
    if (stopped)
        buf_printf(b, " The night stopped because its energy budget of %.6g J was spent.",
                   real(stopped, "limit"));
    buf_puts(b, "</p>\n");
}

static void put_head(struct buf *b, const json_t *r, int64_t night) {
    const json_t *read = json_object_get(r, "read");
    char day[32] = "";
    time_t at = (time_t)real(r, "at");
    struct tm tm;
    if (localtime_r(&at, &tm)) strftime(day, sizeof day, "%Y-%m-%d %H:%M", &tm);
    buf_printf(
        b,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>Night %lld</title><style>%s</style></head><body>\n"
        "<h1>Night %lld</h1><p class=\"dim\">%s, model ",
        (long long)night, style, (long long)night, day);
    put_text(b, text_of(r, "model"));
    buf_printf(b,
               "</p>\n<p>Read %.0f answers: %.0f to learn from, %.0f held out, %.0f below the "
               "wanted worth, %.0f "
               "duplicates, %.0f secrets masked. %s</p>\n",
               real(read, "answers"), real(read, "learned"), real(read, "held_out"),
               real(read, "below_worth"), real(read, "duplicates"), real(read, "secrets_masked"),
               json_is_true(json_object_get(r, "promoted"))
                   ? "<b class=\"good\">Something better was promoted.</b>"
                   : "<b>What served before serves on.</b>");
}

int night_page(struct buf *out, const struct nights *n, int64_t night, struct err *e) {
    json_t *r = NULL;
    int rc = nights_read(n, night, &r, e);
    if (rc) return rc;
    put_head(out, r, night);
    put_lines(out, r);
    put_energy(out, r);
    buf_puts(out, "<h2>What was tried</h2>\n");
    put_steps(out, json_object_get(r, "steps"));
    buf_puts(out, "<h2>What it does to everything else</h2>\n");
    put_gate(out, json_object_get(r, "gate"));
    put_canary(out, json_object_get(r, "canary"));
    put_curve(out, n, night);
    buf_printf(out,
               "<p class=\"dim\">To undo: <code>chimere night rollback</code>. The figures: "
               "<code>chimere night report "
               "%lld --json</code>.</p>\n</body></html>\n",
               (long long)night);
    json_decref(r);
    return out->failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}
