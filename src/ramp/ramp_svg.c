/* ramp_svg.c: see ramp_svg.h. */
#include "ramp/ramp_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "convert/quantize_mix.h"
#include "format/quant.h"
#include "ramp/ramp_hull.h"
#include "ramp/ramp_json.h"

enum { WIDTH = 760, HEIGHT = 480, LEFT = 70, BOTTOM = 50, CURVE = 48, MAX_SVG = 16 << 20 };

static void begin(struct buf *b, int width, int height) {
    buf_init(b, MAX_SVG);
    buf_printf(b,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
               "font-family=\"sans-serif\" "
               "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
               width, height, width, height);
}

/* ---- Pareto ---- */

struct axes {
    double x0, x1, y0, y1; /* bits per weight; log2 of divergence */
};

static double place_x(const struct axes *a, double bits) {
    return LEFT + (bits - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - 20);
}

static double place_y(const struct axes *a, double kl) {
    return HEIGHT - BOTTOM - (log2(kl) - a->y0) / (a->y1 - a->y0) * (HEIGHT - BOTTOM - 20);
}

static void put_axes(struct buf *b, const struct axes *a) {
    for (int bits = (int)ceil(a->x0); bits <= a->x1; bits++)
        buf_printf(b,
                   "<path d=\"M%.1f %d V%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" "
                   "text-anchor=\"middle\">%d</text>\n",
                   place_x(a, bits), 20, HEIGHT - BOTTOM, place_x(a, bits), HEIGHT - BOTTOM + 16,
                   bits);
    for (int k = (int)ceil(a->y0); k <= a->y1; k++)
        buf_printf(b,
                   "<path d=\"M%d %.1f H%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                   "text-anchor=\"end\">%.4g</text>\n",
                   LEFT, place_y(a, exp2(k)), WIDTH - 20, LEFT - 6, place_y(a, exp2(k)) + 4,
                   exp2(k));
    buf_printf(b,
               "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">bits per weight</text>"
               "<text x=\"14\" y=\"14\">KL divergence (predicted)</text>\n",
               WIDTH / 2, HEIGHT - 12);
}

static void put_point(struct buf *b, const struct axes *a, double bits, double kl, const char *name,
                      const char *color) {
    if (!(kl > 0) || bits < a->x0 || bits > a->x1 || log2(kl) < a->y0 || log2(kl) > a->y1) return;
    buf_printf(b,
               "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/><text x=\"%.1f\" y=\"%.1f\">%s"
               "</text>\n",
               place_x(a, bits), place_y(a, kl), color, place_x(a, bits) + 7, place_y(a, kl) + 4,
               name);
}

/* The form of a type; of a type that the tensor cannot have, the next form in size. */
static uint8_t form_of(const struct ramp_gene *g, uint32_t type) {
    const struct quant_traits *q = quant_traits(type);
    double bits = (double)q->block_bytes * 8 / q->block_elements;
    int form = ramp_gene_form(g, type);
    for (int k = 0; k < g->n_form && form < 0; k++)
        if ((double)g->forms[k].n_bytes * 8 / (double)g->tensor->n_elements >= bits) form = k;
    return (uint8_t)(form < 0 ? g->n_form - 1 : form);
}

static void put_uniform(struct buf *b, const struct axes *a, const struct ramp_set *s,
                        uint8_t *choice) {
    for (int type = 0; type < QUANT_N_ID; type++) {
        bool used = false;
        for (size_t i = 0; i < s->n_gene && !used; i++)
            used = ramp_gene_form(&s->genes[i], (uint32_t)type) >= 0;
        if (!used) continue;
        for (size_t i = 0; i < s->n_gene; i++) choice[i] = form_of(&s->genes[i], (uint32_t)type);
        put_point(b, a, ramp_set_bpw(s, choice), ramp_set_predict(s, choice),
                  quant_traits((uint32_t)type)->name, "#999");
    }
}

/* The mixes of llama-quantize; the names after them are those of plain types. */
static void put_mixes(struct buf *b, const struct axes *a, const struct ramp_set *s,
                      uint8_t *choice) {
    struct quantize_shape shape;
    quantize_mix_shape(&shape, s->gguf, s->imatrix != NULL);
    for (int i = 0; quantize_mix_name(i); i++) {
        const struct quantize_mix *m = quantize_mix_find(quantize_mix_name(i));
        char label[64];
        if (quant_traits(quantize_mix_base(m))->block_elements == 1) break;
        for (size_t k = 0; k < s->n_gene; k++)
            choice[k] =
                form_of(&s->genes[k], quantize_mix_type(m, &shape, s->genes[k].tensor, false));
        snprintf(label, sizeof label, "mix %s", quantize_mix_name(i));
        put_point(b, a, ramp_set_bpw(s, choice), ramp_set_predict(s, choice), label, "#393");
    }
}

int ramp_svg_pareto(const struct ramp_set *s, const uint8_t *choice, double measured,
                    const char *work, struct err *e) {
    struct buf b;
    uint8_t *other = mem_alloc_array(s->n_gene, 1);
    if (!other) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    uint64_t least, most;
    ramp_set_range(s, &least, &most);
    double low = (double)(least - s->header_bytes) * 8 / (double)s->n_weights,
           high = (double)(most - s->header_bytes) * 8 / (double)s->n_weights;
    struct axes a = {floor(low), high < 9 ? ceil(high) : 9, INFINITY, -INFINITY};
    double kls[CURVE], bits[CURVE];
    int n = 0;
    for (int i = 0; i < CURVE; i++) {
        const struct ramp_limit l = {
            .bytes = ramp_set_bytes_of_bpw(s, low * 1.001 + (a.x1 - low) * i / (CURVE - 1))};
        if (ramp_solve(s, NULL, &l, other, NULL)) continue;
        kls[n] = ramp_set_predict(s, other);
        bits[n] = ramp_set_bpw(s, other);
        if (!(kls[n] > 0)) continue;
        a.y0 = fmin(a.y0, floor(log2(kls[n])));
        a.y1 = fmax(a.y1, ceil(log2(kls[n])) + 1);
        n++;
    }
    begin(&b, WIDTH, HEIGHT);
    if (n > 1) {
        put_axes(&b, &a);
        for (int i = 0; i < n; i++)
            buf_printf(&b, "%s%.1f %.1f", i ? " L" : "<path fill=\"none\" stroke=\"#06c\" d=\"M",
                       place_x(&a, bits[i]), place_y(&a, kls[i]));
        buf_puts(&b, "\"/>\n");
        put_uniform(&b, &a, s, other);
        put_mixes(&b, &a, s, other);
        put_point(&b, &a, ramp_set_bpw(s, choice), ramp_set_predict(s, choice), "this file",
                  "#06c");
        put_point(&b, &a, ramp_set_bpw(s, choice), measured, "measured", "#c30");
    }
    buf_puts(&b, "</svg>\n");
    mem_free(other);
    return ramp_write_text(&b, work, "pareto.svg", e);
}

/* ---- heat map ---- */

/* White at two bits, dark at eight and more. */
static void put_cell(struct buf *b, int x, int y, double bits) {
    double t = (bits - 2) / 6;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    buf_printf(
        b,
        "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"16\" fill=\"rgb(%d,%d,%d)\"><title>%.2f"
        "</title></rect>\n",
        x, y, (int)(255 - 230 * t), (int)(250 - 150 * t), 255 - (int)(75 * t), bits);
}

int ramp_svg_heat(const struct ramp_set *s, const uint8_t *choice, const char *work,
                  struct err *e) {
    struct buf b;
    int y = 30, rows = 0;
    for (size_t i = 0; i < s->n_gene; i++) rows += s->genes[i].layer >= 0;
    int width = 190 + 20 * (s->n_layer > 0 ? s->n_layer : 1),
        height = 60 + 18 * (rows < 64 ? rows : 64);
    begin(&b, width, height);
    buf_puts(&b, "<text x=\"4\" y=\"14\">bits per weight: role by layer (and of the model: layer "
                 "0)</text>\n");
    for (size_t i = 0; i < s->n_gene; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = strcmp(s->genes[k].role, s->genes[i].role) != 0;
        if (!first) continue;
        buf_printf(&b, "<text x=\"4\" y=\"%d\">%s</text>\n", y + 13, s->genes[i].role);
        for (size_t k = i; k < s->n_gene; k++) {
            const struct ramp_gene *g = &s->genes[k];
            if (strcmp(g->role, s->genes[i].role) != 0) continue;
            put_cell(&b, 170 + 20 * (g->layer > 0 ? g->layer : 0), y,
                     (double)g->forms[choice[k]].n_bytes * 8 / (double)g->tensor->n_elements);
        }
        y += 18;
    }
    buf_puts(&b, "</svg>\n");
    return ramp_write_text(&b, work, "heat.svg", e);
}
