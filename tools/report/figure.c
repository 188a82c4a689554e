/* Figures as SVG, all in one style: horizontal bars with intervals, and points joined by lines.
 * No colour carries meaning alone: bars are labelled, series have marks of their own. No blank lines, because
 * the figure stands inside a Markdown page. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const colours[] = {"#1f6f8b", "#c8553d", "#6a8d2f",
                                      "#8460a8", "#b8860b", "#555555"};
enum {
    N_COLOURS = 6,
    WIDTH = 760,
    LEFT = 280,
    RIGHT = 90,
    BAR = 18,
    GAP = 6,
    TOP = 46,
    HEIGHT = 360
};

static void svg_begin(FILE *out, int height, const struct options *o) {
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n",
            WIDTH, height);
    fputs("<title>", out);
    put_xml(out, option(o, "title", "figure"));
    fprintf(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", WIDTH, height);
    fputs("<text x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"bold\">", out);
    put_xml(out, option(o, "title", ""));
    fputs("</text>\n", out);
}

static void svg_text(FILE *out, double x, double y, const char *anchor, const char *text) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_xml(out, text);
    fputs("</text>\n", out);
}

static const char *series_name(const char *name) { return *name ? name : "Chimère"; }

static size_t series_of(const struct row *row, const char *field, const char *const *names,
                        size_t n) {
    for (size_t k = 0; k < n; k++)
        if (!strcmp(names[k], row_field(row, field))) return k;
    return 0;
}

static void legend(FILE *out, const char *const *names, size_t n, int y) {
    double x = 12;
    for (size_t k = 0; n > 1 && k < n; k++) {
        fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x,
                y - 9, colours[k % N_COLOURS]);
        svg_text(out, x + 14, y, "start", series_name(names[k]));
        x += 30 + 7.0 * (double)strlen(series_name(names[k]));
    }
}

static void bar_write(FILE *out, const struct row *row, double y, double scale, const char *label,
                      size_t series) {
    double w = row_middle(row) * scale;
    svg_text(out, LEFT - 8, y + 13, "end", label);
    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", LEFT, y,
            w < 1 ? 1 : w, BAR, colours[series % N_COLOURS]);
    if (!isnan(row->low) && !isnan(row->high))
        fprintf(out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#222\" stroke-width=\"2\"/>\n",
                LEFT + row->low * scale, y + BAR / 2.0, LEFT + row->high * scale);
    double end = isnan(row->high) ? w : row->high * scale;
    svg_text(out, LEFT + (end > w ? end : w) + 6, y + 13, "start",
             isnan(row->value) ? row_text(row, -1)
                               : number_text(row->value, number_decimals(row->value)));
}

/* The values of a list of fields: "system device" gives "llama.cpp, L40S". */
static const char *label_of(const struct row *row, const char *fields) {
    char *text = malloc(512), list[128], *save = NULL;
    size_t n = 0;
    if (!text) fail("out of memory");
    text[0] = '\0';
    snprintf(list, sizeof list, "%s", fields);
    for (char *s = strtok_r(list, " ", &save); s && n < 400; s = strtok_r(NULL, " ", &save))
        n += (size_t)snprintf(text + n, 512 - n, n ? ", %.100s" : "%.100s", row_field(row, s));
    return text;
}

void bars_write(FILE *out, const struct pick *p, const struct options *o) {
    const char *label = option(o, "label", "test"), *series = option(o, "series", "system"),
               *names[MAX_LINE];
    size_t n = distinct(p, series, names, MAX_LINE);
    double most = 1e-9;
    for (size_t k = 0; k < p->n; k++) {
        most = fmax(most, row_middle(p->row[k]));
        most = isnan(p->row[k]->high) ? most : fmax(most, p->row[k]->high);
    }
    double scale = (WIDTH - LEFT - RIGHT) / most;
    svg_begin(out, TOP + (int)p->n * (BAR + GAP) + 24, o);
    legend(out, names, n, 38);
    for (size_t k = 0; k < p->n; k++) {
        const char *text = label_of(p->row[k], label);
        bool again = k > 0 && !strcmp(text, label_of(p->row[k - 1], label));
        bar_write(out, p->row[k], TOP + (double)k * (BAR + GAP), scale, again ? "" : text,
                  series_of(p->row[k], series, names, n));
    }
    svg_text(out, LEFT, TOP + (double)p->n * (BAR + GAP) + 12, "start",
             option(o, "axis", p->row[0]->unit));
    fputs("</svg>\n", out);
}

struct axis {
    double low, high;
    bool log;
    int from, to; /* pixels */
};

static double axis_at(const struct axis *a, double v) {
    double low = a->log ? log10(a->low) : a->low, high = a->log ? log10(a->high) : a->high;
    double t = ((a->log ? log10(v) : v) - low) / (high - low);
    return a->from + t * (a->to - a->from);
}

static void axis_range(struct axis *a, const struct pick *p, const char *metric) {
    a->low = INFINITY;
    a->high = -INFINITY;
    for (size_t k = 0; k < p->n; k++)
        if (!strcmp(p->row[k]->metric, metric)) {
            a->low = fmin(a->low, row_middle(p->row[k]));
            a->high = fmax(a->high, row_middle(p->row[k]));
        }
    if (!(a->low <= a->high)) fail("no result has the metric '%s'", metric);
    double margin = a->log             ? 0
                    : a->high > a->low ? 0.06 * (a->high - a->low)
                                       : 0.1 * fabs(a->high) + 1e-9;
    a->low = a->log ? a->low * 0.8 : a->low - margin;
    a->high = a->log ? a->high * 1.25 : a->high + margin;
}

/* Round steps (1, 2 or 5 times a power of ten); powers and their halves if logarithmic. */
static void axis_write(FILE *out, const struct axis *a, bool vertical) {
    double step = pow(10, floor(log10((a->high - a->low) / 3)));
    step *= (a->high - a->low) / step > 15 ? 5 : (a->high - a->low) / step > 6 ? 2 : 1;
    double v = a->log ? pow(10, floor(log10(a->low))) : ceil(a->low / step) * step;
    for (int k = 0; v <= a->high && k < 40; k++) {
        if (v >= a->low) {
            double at = axis_at(a, v);
            const char *text = number_text(v, number_decimals(round(v * 1e6) / 1e6));
            if (vertical)
                fprintf(out, "<path d=\"M70 %.1fH%d\" stroke=\"#ddd\"/>\n", at, WIDTH - RIGHT);
            else fprintf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", at, TOP, HEIGHT - 50);
            svg_text(out, vertical ? 64 : at, vertical ? at + 4 : HEIGHT - 34,
                     vertical ? "end" : "middle", text);
        }
        v = a->log ? (k % 3 == 1 ? v * 2.5 : v * 2) : v + step;
    }
}

static void mark_write(FILE *out, double x, double y, size_t series) {
    const char *c = colours[series % N_COLOURS];
    if (series % 3 == 0)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x, y, c);
    else if (series % 3 == 1)
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\" fill=\"%s\"/>\n",
                x - 4.5, y - 4.5, c);
    else fprintf(out, "<path d=\"M%.1f %.1fl6 10h-12z\" fill=\"%s\"/>\n", x, y - 6, c);
}

static const struct row *partner(const struct pick *p, const struct row *row, const char *metric) {
    for (size_t k = 0; k < p->n; k++)
        if (!strcmp(p->row[k]->metric, metric) && !strcmp(p->row[k]->test, row->test) &&
            !strcmp(p->row[k]->system, row->system))
            return p->row[k];
    return NULL;
}

/* Points: results of two metrics that have the same test and system. */
void points_write(FILE *out, const struct pick *p, const struct options *o) {
    const char *x = option(o, "x", ""), *y = option(o, "y", ""), *names[MAX_LINE];
    const char *logs = option(o, "log", "");
    size_t n = distinct(p, "system", names, MAX_LINE);
    struct axis ax = {.from = 70, .to = WIDTH - RIGHT, .log = strchr(logs, 'x')};
    struct axis ay = {.from = HEIGHT - 50, .to = TOP, .log = strchr(logs, 'y')};
    bool joined = !strcmp(option(o, "line", "no"), "yes"),
         labels = !strcmp(option(o, "labels", "yes"), "yes");
    double last_x[MAX_LINE], last_y[MAX_LINE];
    axis_range(&ax, p, x);
    axis_range(&ay, p, y);
    for (size_t k = 0; k < n; k++) last_x[k] = NAN;
    svg_begin(out, HEIGHT, o);
    legend(out, names, n, 38);
    axis_write(out, &ax, false);
    axis_write(out, &ay, true);
    for (size_t k = 0; k < p->n; k++) {
        const struct row *row = p->row[k],
                         *other = strcmp(row->metric, x) ? NULL : partner(p, row, y);
        if (!other) continue;
        size_t s = series_of(row, "system", names, n);
        double px = axis_at(&ax, row_middle(row)), py = axis_at(&ay, row_middle(other));
        if (joined && !isnan(last_x[s]))
            fprintf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"1.5\"/>\n",
                    last_x[s], last_y[s], px, py, colours[s % N_COLOURS]);
        last_x[s] = px;
        last_y[s] = py;
        mark_write(out, px, py, s);
        if (labels) svg_text(out, px + 8, py - 6, "start", row->test);
    }
    svg_text(out, (70 + WIDTH - RIGHT) / 2.0, HEIGHT - 12, "middle", option(o, "xaxis", x));
    fputs("<g transform=\"rotate(-90 16 180)\">", out);
    svg_text(out, 16, 180, "middle", option(o, "yaxis", y));
    fputs("</g>\n</svg>\n", out);
}
