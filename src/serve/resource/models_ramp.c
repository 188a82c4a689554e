/* models_ramp.c: one search at a time, because it takes all cores and a worker. If the client leaves, the search stops; the
 * next request with the same members resumes it from its work folder, which the list of models does not show. */
#include "serve/resource/models_ramp.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "ramp/ramp_process.h"
#include "ramp/ramp_type.h"
#include "serve/api/api.h"
#include "serve/api/json_out.h"
#include "serve/http/http_impl.h"
#include "serve/resource/models_disk.h"

enum { PATH_BYTES = 4096, MAX_NAME = 100, MAX_TEXT = 2 << 20, MAX_SVG = 1 << 20 };

struct wish {
    char model[PATH_BYTES + 256], out[PATH_BYTES + 256], work[PATH_BYTES + 256];
    char text[PATH_BYTES + 300]; /* path of the calibration text, "": none */
    struct ramp_options o;       /* its paths are the fields above */
};

/* ---- the request ---- */

static bool is_name(const char *s) {
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+";
    return s && *s && *s != '.' && strlen(s) <= MAX_NAME && strspn(s, ok) == strlen(s);
}

/* A name of the list of models may have folders. */
static bool is_listed(const char *s) {
    return s && *s && *s != '/' && *s != '.' && strlen(s) < MODELS_MAX_NAME_BYTES &&
           !strstr(s, "/.") && !strchr(s, '\\');
}

static int read_goal(struct wish *w, const json_t *q, struct err *e) {
    const json_t *bpw = json_object_get(q, "bpw"), *size = json_object_get(q, "size"),
                 *card = json_object_get(q, "card");
    if (!bpw + !size + !card != 2)
        return err_set(e, CHIMERE_EINVAL, "bpw: expected exactly one of bpw, size and card");
    if (bpw && !(json_number_value(bpw) >= 0.5 && json_number_value(bpw) <= 32))
        return err_set(e, CHIMERE_EINVAL, "bpw: expected a number from 0.5 to 32");
    if (size && (!json_is_string(size) ||
                 !str_to_bytes(json_string_value(size), &w->o.size_bytes) || !w->o.size_bytes))
        return err_set(e, CHIMERE_EINVAL, "size: expected a size such as \"14.2G\"");
    w->o.bpw = json_number_value(bpw);
    w->o.card = json_string_value(card);
    if (card && (!w->o.card || !ramp_card_find(w->o.card)))
        return err_set(e, CHIMERE_EINVAL, "card: expected a name of GET /chimere/v1/ramp");
    json_int_t ctx = json_integer_value(json_object_get(q, "ctx"));
    if (ctx && (ctx < 256 || ctx > 1 << 24))
        return err_set(e, CHIMERE_EINVAL, "ctx: expected 256 to 16777216 tokens");
    if (ctx) w->o.ctx = ctx;
    return 0;
}

static int read_text(struct wish *w, const json_t *q, struct err *e) {
    const json_t *text = json_object_get(q, "text");
    size_t n = json_string_length(text);
    if (!text || json_is_null(text)) return 0;
    if (!json_is_string(text) || !n || n > MAX_TEXT)
        return err_set(e, CHIMERE_EINVAL, "text: expected a text of at most 2 MiB");
    snprintf(w->text, sizeof w->text, "%s/text.txt", w->work);
    w->o.text = w->text;
    return file_write(w->text, json_string_value(text), n, e);
}

static int read_wish(struct wish *w, const char *dir, const json_t *q, struct err *e) {
    const char *model = json_string_value(json_object_get(q, "model")),
               *out = json_string_value(json_object_get(q, "out")),
               *mode = json_string_value(json_object_get(q, "mode"));
    if (!is_listed(model))
        return err_set(e, CHIMERE_EINVAL, "model: expected a name of GET /chimere/v1/models");
    if (!is_name(out))
        return err_set(e, CHIMERE_EINVAL,
                       "out: expected a new name of letters, digits and ._-+, at most %d",
                       (int)MAX_NAME);
    if (mode && strcmp(mode, "portable") != 0 && strcmp(mode, "chimere") != 0)
        return err_set(e, CHIMERE_EINVAL, "mode: expected \"portable\" or \"chimere\"");
    ramp_defaults(&w->o);
    snprintf(w->model, sizeof w->model, "%s/%s.gguf", dir, model);
    snprintf(w->out, sizeof w->out, "%s/%s.gguf", dir, out);
    snprintf(w->work, sizeof w->work, "%s/.ramp/%s", dir, out);
    w->o.model = w->model;
    w->o.out = w->out;
    w->o.work = w->work;
    w->o.mode = mode && strcmp(mode, "chimere") == 0 ? RAMP_CHIMERE : RAMP_PORTABLE;
    w->o.predict_only = json_is_true(json_object_get(q, "predict"));
    int rc = read_goal(w, q, e);
    if (!rc && !file_exists(w->model))
        rc = err_set(e, CHIMERE_ENOENT, "model: no '%s' in %s", model, dir);
    if (!rc && file_exists(w->out))
        rc = err_set(e, CHIMERE_EINVAL, "out: there is a model of that name");
    if (!rc) rc = file_mkdirs(w->work, e);
    return rc ? rc : read_text(w, q, e);
}

/* ---- the answer ---- */

static bool put_line(struct http_request *r, struct buf *line) {
    bool ok = !line->failed && http_put(r, line->p, line->n);
    buf_fini(line);
    return ok;
}

static bool show(void *ud, const char *step, uint64_t done, uint64_t total) {
    struct http_request *r = ud;
    struct buf line;
    buf_init(&line, 1 << 16);
    buf_puts(&line, "{\"step\":");
    json_out_string(&line, step);
    buf_printf(&line, ",\"done\":%llu,\"total\":%llu}\n", (unsigned long long)done,
               (unsigned long long)total);
    return put_line(r, &line) && !r->s->stopping;
}

static void put_picture(struct buf *line, const struct wish *w, const char *name) {
    char path[sizeof w->work + 32], *svg = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/%s.svg", w->work, name);
    if (file_read(path, MAX_SVG, &svg, &n, NULL)) return;
    buf_printf(line, ",\"%s\":", name);
    json_out_string(line, svg);
    mem_free(svg);
}

static void put_result(struct buf *line, const struct wish *w, const char *name,
                       const struct ramp_summary *s) {
    struct fs_info file = {.bytes = s->n_bytes};
    fs_stat(w->out, &file);
    buf_puts(line, "{\"name\":");
    json_out_string(line, name);
    buf_printf(line, ",\"bytes\":%llu,\"bpw\":%.4f,\"predicted\":%.6f",
               (unsigned long long)file.bytes, s->bpw, s->predicted);
    if (s->measured >= 0)
        buf_printf(line, ",\"measured\":%.6f,\"start\":%.6f,\"generations\":%d", s->measured,
                   s->measured_start, s->generations);
    put_picture(line, w, "pareto");
    put_picture(line, w, "heat");
    buf_puts(line, "}\n");
}

static void make(struct http_request *r, const struct wish *w, const char *name) {
    struct err e = {0};
    struct ramp_summary s;
    struct buf line;
    http_stream_begin(r, "application/x-ndjson");
    int rc = ramp_process_run(&w->o, show, r, &e);
    if (!rc) rc = ramp_summary_read(&s, &w->o, &e);
    buf_init(&line, 4 << 20);
    if (rc) {
        buf_puts(&line, "{\"error\":{\"message\":");
        json_out_string(&line, e.text);
        buf_puts(&line, "}}\n");
    } else put_result(&line, w, name, &s);
    put_line(r, &line);
    http_stream_end(r);
}

void models_ramp_make(struct http_request *r) {
    struct server *s = r->s;
    struct err e = {0};
    char dir[PATH_BYTES];
    json_t *q = api_json(r);
    if (!q) return;
    struct wish *w = mem_zalloc(sizeof *w);
    int rc =
        w ? models_disk_dir(s, dir, sizeof dir, &e) : err_set(&e, CHIMERE_ENOMEM, "out of memory");
    bool alone = !atomic_exchange(&s->is_searching, true);
    if (!rc && !alone)
        rc = err_set(&e, CHIMERE_EBUSY, "model: a smaller copy of another model is being made");
    if (!rc) rc = read_wish(w, dir, q, &e);
    if (rc) http_fail(r, &e);
    else make(r, w, json_string_value(json_object_get(q, "out")));
    if (alone) s->is_searching = false;
    json_decref(q);
    mem_free(w);
}

void models_ramp_cards(struct http_request *r) {
    struct buf out;
    buf_init(&out, 1 << 16);
    buf_puts(&out, "{\"cards\":[");
    for (int i = 0; ramp_card_name(i); i++) {
        const struct ramp_card *card = ramp_card_find(ramp_card_name(i));
        buf_puts(&out, i ? ",{\"name\":" : "{\"name\":");
        json_out_string(&out, card->name);
        buf_printf(&out, ",\"bytes\":%.0f}", card->memory_gib * 1073741824.0);
    }
    buf_puts(&out, "]}");
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
