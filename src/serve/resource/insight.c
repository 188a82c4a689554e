#include "serve/resource/insight.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "learn/night_page.h"
#include "learn/nights.h"
#include "odo/odo.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"
#include "store/decision.h"
#include "store/quality.h"

enum { MOST = 1000, MOST_NIGHTS = 60, USUAL = 50, MAX_OUT = 64 << 20 };

static void answer(struct http_request *r, int rc, struct buf *out, const struct err *e) {
    if (rc) http_fail(r, e);
    else http_reply(r, 200, NULL, out);
    buf_fini(out);
}

/* ---- requests ---- */

struct listing {
    struct buf *out;
    int32_t n;
};

static int put_request(void *ud, int64_t id, const struct store_request *q) {
    struct listing *l = ud;
    buf_printf(l->out, "%s{\"id\":%lld,\"at_ms\":%lld,\"key\":%lld,\"api\":", l->n++ ? "," : "",
               (long long)id, (long long)q->at_ms, (long long)q->key_id);
    json_out_string(l->out, q->api);
    buf_puts(l->out, ",\"model\":");
    json_out_string(l->out, q->model);
    buf_puts(l->out, ",\"finish\":");
    json_out_string(l->out, q->finish);
    buf_printf(l->out,
               ",\"status\":%d,\"prompt\":%d,\"cached\":%d,\"generated\":%d,\"reasoning\":%d",
               q->status, q->n_prompt, q->n_cached, q->n_generated, q->n_reasoning);
    buf_printf(l->out, ",\"queue_ms\":%.1f,\"prefill_ms\":%.1f,\"decode_ms\":%.1f}", q->queue_ms,
               q->prefill_ms, q->decode_ms);
    return 0;
}

/* Newest first: ?limit=N&before=ID. If requests are not recorded, the list is empty. */
void insight_requests(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct listing l = {&out, 0};
    struct store *s = r->s->p.store;
    const char *text = http_query(r, "before");
    int64_t before = 0;
    int32_t limit = 0;
    buf_init(&out, MAX_OUT);
    int rc = http_limit(r, USUAL, MOST, &limit, &e);
    if (!rc && text && !str_to_i64(text, 1, INT64_MAX, &before))
        rc = err_set(&e, CHIMERE_EINVAL, "before: expected the id of a request");
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc && s) rc = store_request_list(s, before, limit, put_request, &l, &e);
    buf_printf(&out, "],\"is_recorded\":%s}", s ? "true" : "false");
    answer(r, rc, &out, &e);
}

/* ---- decisions ---- */

static int put_decision(void *ud, const struct store_decision *d) {
    struct listing *l = ud;
    buf_printf(l->out, "%s{\"id\":%lld,\"at_ms\":%lld,\"ms\":%.1f,\"failed\":%s,\"route\":",
               l->n++ ? "," : "", (long long)d->id, (long long)d->at_ms, d->ms,
               d->failed ? "true" : "false");
    json_out_string(l->out, d->route);
    buf_puts(l->out, ",\"how\":");
    json_out_string(l->out, d->how);
    buf_puts(l->out, ",\"pipeline\":");
    json_out_string(l->out, d->pipeline);
    buf_puts(l->out, ",\"mode\":");
    json_out_string(l->out, d->mode);
    buf_printf(l->out, ",\"record\":%s}", d->record[0] ? d->record : "null");
    return 0;
}

void insight_decisions(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct listing l = {&out, 0};
    struct store *s = r->s->p.odo ? odo_store(r->s->p.odo) : NULL;
    int32_t limit = 0;
    buf_init(&out, MAX_OUT);
    int rc = http_limit(r, USUAL, MOST, &limit, &e);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc && s) rc = store_decision_list(s, limit, put_decision, &l, &e);
    buf_printf(&out, "],\"is_recorded\":%s}", s ? "true" : "false");
    answer(r, rc, &out, &e);
}

/* ---- quality ---- */

enum { N_DAY = 90, DAY_MS = 86400000, N_EXAMPLE = 50, MAX_EXAMPLE = 8192 };
static const double GOOD = 0.75; /* worth of an answer that is shown as an example */

struct quality_days {
    int64_t from_ms;
    struct {
        int64_t n, n_rated;
        double sum;
    } day[N_DAY];
    json_t *examples; /* the newest last */
};

static int keep_example(json_t *all, const struct store_quality *q, double worth) {
    if (!q->question || !q->answer || strlen(q->question) + strlen(q->answer) > MAX_EXAMPLE)
        return 0;
    json_t *x = json_pack("{s:I, s:I, s:s, s:s, s:s, s:f}", "id", (json_int_t)q->id, "at_ms",
                          (json_int_t)q->at_ms, "route", q->route ? q->route : "", "question",
                          q->question, "answer", q->answer, "worth", worth);
    if (json_array_append_new(all, x)) return CHIMERE_ENOMEM;
    return json_array_size(all) > N_EXAMPLE && json_array_remove(all, 0) ? CHIMERE_ENOMEM : 0;
}

static int add_quality(void *ud, const struct store_quality *q) {
    struct quality_days *d = ud;
    int64_t k = (q->at_ms - d->from_ms) / DAY_MS;
    double worth = store_quality_worth(q);
    if (q->parent || q->at_ms < d->from_ms || k >= N_DAY) return 0;
    d->day[k].n++;
    if (isnan(worth)) return 0;
    d->day[k].n_rated++;
    d->day[k].sum += worth;
    return worth < GOOD ? 0 : keep_example(d->examples, q, worth);
}

/* The last 90 days, without those that have no answers; then the newest good answers whose texts are kept. */
static void put_quality(struct buf *out, const struct quality_days *d) {
    bool first = true;
    for (int64_t k = 0; k < N_DAY; k++) {
        if (!d->day[k].n) continue;
        buf_printf(out,
                   "%s{\"at_ms\":%lld,\"answers\":%lld,\"rated\":%lld,\"worth\":", first ? "" : ",",
                   (long long)(d->from_ms + k * DAY_MS), (long long)d->day[k].n,
                   (long long)d->day[k].n_rated);
        if (d->day[k].n_rated) buf_printf(out, "%.4f}", d->day[k].sum / (double)d->day[k].n_rated);
        else buf_puts(out, "null}");
        first = false;
    }
    buf_puts(out, "],\"examples\":");
    json_out_value(out, d->examples);
}

void insight_quality(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct store *s = r->s->p.odo ? odo_store(r->s->p.odo) : r->s->p.store;
    struct quality_days d = {.from_ms = (store_now_ms() / DAY_MS - N_DAY + 1) * DAY_MS,
                             .examples = json_array()};
    int rc = d.examples ? 0 : err_set(&e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&out, MAX_OUT);
    if (!rc && s) rc = store_quality_list(s, d.from_ms, add_quality, &d, &e);
    buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    if (!rc) put_quality(&out, &d);
    buf_printf(&out, ",\"is_recorded\":%s}", s ? "true" : "false");
    json_decref(d.examples);
    answer(r, rc, &out, &e);
}

/* ---- nights ---- */

static int put_nights(const struct nights *n, struct buf *out, struct err *e) {
    bool first = true;
    buf_printf(out, "{\"object\":\"list\",\"current\":%lld,\"data\":[",
               (long long)nights_current(n));
    int64_t last = nights_last(n);
    for (int64_t k = last; k > 0 && k > last - MOST_NIGHTS; k--) {
        json_t *record;
        int rc = nights_read(n, k, &record, e);
        if (rc == CHIMERE_ENOENT) continue; /* the report was deleted */
        if (rc) return rc;
        if (!first) buf_putc(out, ',');
        first = false;
        json_out_value(out, record);
        json_decref(record);
    }
    buf_puts(out, "]}");
    return 0;
}

void insight_nights(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct nights *n;
    buf_init(&out, MAX_OUT);
    int rc = nights_open(&n, NULL, NIGHTS_READ, &e);
    if (!rc) {
        rc = put_nights(n, &out, &e);
        nights_close(n);
    }
    answer(r, rc, &out, &e);
}

/* The page contains users' questions and is served from the server's own origin. Its policy therefore forbids scripts
 * and loading. */
void insight_night_page(struct http_request *r) {
    struct err e = {0};
    struct buf out, h;
    struct nights *n = NULL;
    int64_t night = 0;
    buf_init(&out, MAX_OUT);
    buf_init(&h, 1024);
    int rc = str_to_i64(http_rest(r), 1, NIGHTS_MAX, &night)
                 ? nights_open(&n, NULL, NIGHTS_READ, &e)
                 : err_set(&e, CHIMERE_ENOENT, "there is no night of this name");
    if (!rc) rc = night_page(&out, n, night, &e);
    nights_close(n);
    buf_puts(&h, "Content-Security-Policy: sandbox; default-src 'none'; style-src 'unsafe-inline';"
                 " img-src data:\nX-Content-Type-Options: nosniff\nCache-Control: no-store");
    http_headers(r, &h);
    if (rc) http_fail(r, &e);
    else http_reply(r, 200, "text/html; charset=utf-8", &out);
    buf_fini(&h);
    buf_fini(&out);
}

/* {"night": N}: serves again what night N had promoted; 0: serves without anything learned. */
void insight_roll_back(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct nights *n = NULL;
    json_t *q = api_json(r);
    if (!q) return;
    const json_t *v = json_object_get(q, "night");
    buf_init(&out, MAX_OUT);
    int rc = json_is_integer(v) && json_object_size(q) == 1 && json_integer_value(v) >= 0 &&
                     json_integer_value(v) <= NIGHTS_MAX
                 ? nights_open(&n, NULL, NIGHTS_RETURN, &e)
                 : err_set(&e, CHIMERE_EINVAL, "night: expected its number, and no other field");
    if (!rc) rc = nights_select(n, json_integer_value(v), &e);
    if (!rc) rc = put_nights(n, &out, &e);
    nights_close(n);
    json_decref(q);
    answer(r, rc, &out, &e);
}
