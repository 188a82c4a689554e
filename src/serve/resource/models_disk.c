#include "serve/resource/models_disk.h"

#include <stdio.h>
#include <string.h>

#include "backend/catalog/models.h"
#include "backend/catalog/recommend.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/plan.h"
#include "net/pull.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"

enum { PATH_BYTES = 4096, MAX_OUT = 4 << 20, PROGRESS_MS = 250 };

int models_disk_dir(const struct server *s, char *out, size_t n, struct err *e) {
    if (!s->p.models_dir) return file_user_data("models", out, n, e);
    return (size_t)snprintf(out, n, "%s", s->p.models_dir) < n
               ? 0
               : err_set(e, CHIMERE_ELIMIT, "models directory: the path is too long");
}

/* ---- models on disk ---- */

struct disk_plan {
    struct memory_plan plan;
    uint64_t budget, host_budget; /* what the plan may use */
    bool fits;
};

static void put_plan(struct buf *out, const struct disk_plan *d) {
    const struct memory_plan *p = &d->plan;
    const uint64_t *tier = p->tier_bytes;
    buf_printf(out,
               ",\"plan\":{\"weights\":%llu,\"cache\":%llu,\"state\":%llu,\"scratch\":%llu,"
               "\"program\":%llu,\"total\":%llu,\"n_ctx\":%lld,\"slots\":%d,\"n_ctx_train\":%lld",
               (unsigned long long)p->weight_bytes, (unsigned long long)p->cache_bytes,
               (unsigned long long)p->state_bytes, (unsigned long long)p->scratch_bytes,
               (unsigned long long)p->program_bytes, (unsigned long long)p->total_bytes,
               (long long)p->engine.n_ctx_seq, p->engine.n_seq, (long long)p->n_ctx_train);
    buf_printf(out, ",\"fits\":%s,\"device\":%s,\"budget\":%llu,\"host\":%llu,\"host_budget\":%llu",
               d->fits ? "true" : "false", p->is_device ? "true" : "false",
               (unsigned long long)d->budget, (unsigned long long)p->host_bytes,
               (unsigned long long)d->host_budget);
    buf_printf(out, ",\"experts\":{\"device\":%llu,\"memory\":%llu,\"disk\":%llu,\"slots\":%s}}",
               (unsigned long long)tier[PLAN_DEVICE], (unsigned long long)tier[PLAN_MEMORY],
               (unsigned long long)tier[PLAN_DISK], p->slot_bytes ? "true" : "false");
}

/* A model that does not fit is planned again without a limit, so that the page shows what is missing. */
static int plan_file(struct disk_plan *d, const struct server *s, const char *path, struct err *e) {
    struct plan_params want = {.n_seq_want = 4,
                               .budget_bytes = s->p.ram_bytes,
                               .dev = s->p.dev,
                               .vram_bytes = s->p.vram_bytes,
                               .expert_slots = s->p.expert_slots};
    engine_defaults(&want.engine);
    int rc = plan_make(&d->plan, path, &want, e);
    d->budget = d->plan.budget_bytes;
    d->host_budget = d->plan.host_budget_bytes;
    d->fits = !rc;
    if (rc != CHIMERE_ELIMIT) return rc;
    want.budget_bytes = UINT64_MAX;
    return plan_make(&d->plan, path, &want, e);
}

static void put_file(struct buf *out, const struct server *s, const char *dir, const char *name,
                     bool first) {
    char path[PATH_BYTES + MODELS_MAX_NAME_BYTES + 8];
    struct disk_plan plan;
    struct err e = {0};
    snprintf(path, sizeof path, "%.4095s/%.127s.gguf", dir, name);
    buf_puts(out, first ? "{\"name\":" : ",{\"name\":");
    json_out_string(out, name);
    if (plan_file(&plan, s, path, &e)) {
        buf_puts(out, ",\"error\":");
        json_out_string(out, e.text);
    } else {
        put_plan(out, &plan);
    }
    buf_putc(out, '}');
}

void models_disk_list(struct http_request *r) {
    static _Thread_local struct model_row rows[MODELS_MAX];
    char dir[PATH_BYTES];
    struct err e = {0};
    struct models *there = NULL;
    struct load_params how;
    struct buf out;
    load_defaults(&how);
    buf_init(&out, MAX_OUT);
    int rc = models_disk_dir(r->s, dir, sizeof dir, &e);
    if (!rc) rc = models_new(&there, 0, 0, &e);
    if (!rc && file_exists(dir)) rc = models_add_dir(there, dir, &how, &e);
    if (rc == CHIMERE_ELIMIT) rc = 0; /* the list is full */
    size_t n = rc ? 0 : models_list(there, rows, MODELS_MAX);
    buf_puts(&out, "{\"object\":\"list\",\"folder\":");
    json_out_string(&out, dir);
    buf_printf(&out, ",\"memory\":%llu,\"data\":[", (unsigned long long)plan_available_bytes());
    for (size_t i = 0; i < n && i < MODELS_MAX; i++) put_file(&out, r->s, dir, rows[i].name, !i);
    buf_puts(&out, "]}");
    models_free(there);
    if (rc) http_fail(r, &e);
    else http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}

/* ---- download ---- */

struct pulling {
    struct http_request *r; /* view */
    const char *file;       /* view */
    uint64_t n_done, n_total;
    size_t i, n;
    int64_t told_ns;
    bool gone, checks;
};

static void tell(struct pulling *p) {
    struct buf line;
    buf_init(&line, 1 << 16);
    buf_puts(&line, "{\"file\":");
    json_out_string(&line, p->file);
    buf_printf(&line,
               ",\"index\":%zu,\"files\":%zu,\"step\":\"%s\",\"done\":%llu,\"total\":%llu}\n",
               p->i + 1, p->n, p->checks ? "checking" : "fetching", (unsigned long long)p->n_done,
               (unsigned long long)p->n_total);
    if (line.failed || !http_put(p->r, line.p, line.n)) p->gone = true;
    buf_fini(&line);
    p->told_ns = clock_ns();
}

static void on_file(void *ud, const struct hub_file *f, size_t i, size_t n, bool is_there) {
    struct pulling *p = ud;
    p->file = f->path;
    p->i = i;
    p->n = n;
    p->n_total = f->size;
    p->n_done = is_there ? f->size : 0;
    p->checks = false;
    tell(p);
}

static void grow(struct pulling *p, uint64_t n, bool checks) {
    if (checks != p->checks) p->n_done = 0;
    p->checks = checks;
    p->n_done += n;
    if (clock_ns() - p->told_ns >= (int64_t)PROGRESS_MS * 1000000) tell(p);
}
static void on_bytes(void *ud, uint64_t n) { grow(ud, n, false); }
static void on_check(void *ud, uint64_t n) { grow(ud, n, true); }
static bool is_cancelled(void *ud) {
    const struct pulling *p = ud;
    return p->gone || p->r->s->stopping;
}

/* Streams lines of progress, then a line with the path or the error. If the client leaves, the download stops; the next
 * request for the same model resumes it. */
static void pull(struct http_request *r, const struct hub_ref *ref) {
    struct server *s = r->s;
    char dir[PATH_BYTES], path[PATH_BYTES] = "";
    struct pulling p = {.r = r};
    struct err e = {0};
    struct buf line;
    int rc = models_disk_dir(s, dir, sizeof dir, &e);
    const struct pull how = {.dir = dir,
                             .endpoint = s->p.hub_endpoint,
                             .token = s->p.hub_token,
                             .on_file = on_file,
                             .on_bytes = on_bytes,
                             .on_check = on_check,
                             .is_cancelled = is_cancelled,
                             .ud = &p};
    http_stream_begin(r, "application/x-ndjson");
    if (!rc) rc = pull_model(&how, ref, path, sizeof path, &e);
    buf_init(&line, 1 << 16);
    buf_puts(&line, rc ? "{\"error\":{\"message\":" : "{\"path\":");
    json_out_string(&line, rc ? e.text : path);
    buf_puts(&line, rc ? "}}\n" : "}\n");
    if (!line.failed) http_put(r, line.p, line.n);
    buf_fini(&line);
    http_stream_end(r);
}

/* {"model": "hf:OWNER/REPO[:FILE or TYPE]", or the short name of a recommended model}. One download at a time, because
 * it occupies a worker. */
void models_disk_pull(struct http_request *r) {
    struct server *s = r->s;
    struct err e = {0};
    struct hub_ref ref;
    char hub[512];
    json_t *q = api_json(r);
    if (!q) return;
    const char *name = json_string_value(json_object_get(q, "model"));
    int rc = name && json_object_size(q) == 1
                 ? 0
                 : err_set(&e, CHIMERE_EINVAL, "model: expected its name, and no other field");
    if (!rc && recommend_hub(name, hub, sizeof hub)) name = hub;
    if (!rc) rc = hub_parse(&ref, name, &e);
    if (!rc && atomic_exchange(&s->is_pulling, true))
        rc = err_set(&e, CHIMERE_EBUSY, "model: another one is being fetched");
    json_decref(q);
    if (rc) {
        http_fail(r, &e);
        return;
    }
    pull(r, &ref);
    s->is_pulling = false;
}
