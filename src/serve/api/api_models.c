/* api_models.c: /models/load and /models/unload, and the state of the models that are loaded on demand. */
#include <string.h>

#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "backend/catalog/models.h"
#include "serve/api/native.h"

static void put_row(struct buf *out, const struct model_row *row) {
    buf_puts(out, "{\"id\":");
    json_out_string(out, row->name);
    buf_printf(out, ",\"state\":\"%s\",\"running\":%d", models_state_name(row->state), row->n_held);
    if (row->state == MODEL_READY)
        buf_printf(out, ",\"bytes\":%llu,\"n_ctx\":%lld,\"slots\":%d",
                   (unsigned long long)row->plan.total_bytes, (long long)row->plan.engine.n_ctx_seq,
                   row->plan.engine.n_seq);
    if (row->state == MODEL_FAILED) {
        buf_puts(out, ",\"error\":");
        json_out_string(out, row->err.text);
    }
    buf_putc(out, '}');
}

void native_put_models(struct server *s, struct buf *out) {
    /* 50 kB: too large for a thread's stack */
    static _Thread_local struct model_row rows[MODELS_MAX];
    size_t n = s->p.models ? models_list(s->p.models, rows, MODELS_MAX) : 0;
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) buf_putc(out, ',');
        put_row(out, &rows[i]);
    }
    buf_putc(out, ']');
}

static void change(struct http_request *r, int (*fn)(struct models *, const char *, struct err *)) {
    struct err e = {0};
    json_t *q = api_json(r);
    if (!q) return;
    struct models *models = http_server(r)->p.models;
    const char *name = json_string_value(json_object_get(q, "model"));
    int rc = 0;
    if (!name || json_object_size(q) != 1)
        rc = err_set(&e, CHIMERE_EINVAL, "model: expected its name, and no other field");
    if (!rc && !models)
        rc = err_set(&e, CHIMERE_ENOENT, "model: this server loads no further models (--also)");
    if (!rc) rc = fn(models, name, &e);
    json_decref(q);
    if (rc) {
        http_fail(r, &e);
        return;
    }
    struct buf out;
    buf_init(&out, 1 << 20);
    buf_puts(&out, "{\"models\":");
    native_put_models(http_server(r), &out);
    buf_putc(&out, '}');
    http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

void native_load(struct http_request *r) { change(r, models_load); }
void native_unload(struct http_request *r) { change(r, models_unload); }
