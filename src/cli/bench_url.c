/* bench_url.c: sends streamed requests of random token ids and measures the speed that a client sees.
 *
 * The timing window begins when a request is sent (with --rate: at its arrival time) and ends with its stream. No
 * two prompts share a prefix, so that no cache helps. The end of text is ignored, so that every answer has the
 * same length. Gaps are the times between two pieces of one answer. */
#include "cli/bench_url.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "cli/args/remote_args.h"
#include "net/fetch.h"
#include "net/sse.h"

enum { MAX_EVENT_BYTES = 1 << 20, MAX_SAMPLES = 1 << 24, STALL_MS = 600000 };

struct samples {
    float *ms; /* owned */
    size_t n, cap;
};

struct stream {
    struct load *load; /* view */
    struct buf body;
    struct sse events;
    /* arrival time; time of the first and last piece, 0: none yet */
    int64_t due_ns, first_ns, last_ns;
    int64_t n_tok;
};

struct load {
    struct remote remote;
    char url[2100];
    int32_t n_prompt, n_gen, n_stream;
    int64_t n_request, n_started, n_done, n_failed, n_tok;
    /* over all streams: tokens after the first piece, and the time for them */
    int64_t n_decoded, decode_ns;
    double rate;
    int64_t next_ns; /* time of the next arrival */
    struct rng rng;
    struct stream *streams; /* owned [n_stream] */
    struct samples first, gap;
    struct err err; /* the first failure */
    bool out_of_memory;
};

static void add_sample(struct load *l, struct samples *s, int64_t from_ns, int64_t to_ns) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4096;
        float *grown = cap <= MAX_SAMPLES ? mem_realloc(s->ms, cap * sizeof *grown) : NULL;
        if (!grown) {
            l->out_of_memory = true;
            return;
        }
        s->ms = grown;
        s->cap = cap;
    }
    s->ms[s->n++] = (float)((double)(to_ns - from_ns) * 1e-6);
}

/* ---- one stream ---- */

static int64_t number_behind(const char *data, const char *field) {
    const char *p = strstr(data, field);
    return p ? strtoll(p + strlen(field), NULL, 10) : 0;
}

/* Searches for the needed text without parsing the JSON, because the generator shares the machine with the server. */
static int on_event(void *ud, const struct sse_event *ev) {
    struct stream *s = ud;
    struct load *l = s->load;
    const char *usage = strstr(ev->data, "\"usage\":{");
    if (usage) s->n_tok = number_behind(usage, "\"completion_tokens\":");
    if (strstr(ev->data, "\"error\":{"))
        return err_set(&l->err, CHIMERE_EIO, "the server reports: %.200s", ev->data);
    const char *text = strstr(ev->data, "\"text\":\"");
    if (!text || text[8] == '"') return 0;
    int64_t now = clock_ns();
    if (s->last_ns) {
        add_sample(l, &l->gap, s->last_ns, now);
    } else {
        add_sample(l, &l->first, s->due_ns, now);
        s->first_ns = now;
    }
    s->last_ns = now;
    return 0;
}

static int on_body(void *ud, const char *p, size_t n) {
    return sse_feed(&((struct stream *)ud)->events, p, n);
}

static void write_request(struct stream *s) {
    struct load *l = s->load;
    buf_clear(&s->body);
    buf_printf(&s->body,
               "{\"model\":\"%s\",\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true,"
               "\"stream_options\":{\"include_usage\":true},\"prompt\":[",
               l->remote.model, l->n_gen);
    for (int32_t i = 0; i < l->n_prompt; i++)
        buf_printf(&s->body, "%s%d", i ? "," : "", 300 + (int)rng_below(&l->rng, 1000));
    buf_puts(&s->body, "]}");
}

static enum fetch_next next(void *ud, int32_t i, struct fetch_request *r) {
    static const char *const heads[] = {"Content-Type: application/json", NULL};
    struct load *l = ud;
    struct stream *s = &l->streams[i];
    if (l->n_started == l->n_request || l->err.code) return FETCH_STOP;
    int64_t now = clock_ns();
    if (l->rate > 0 && now < l->next_ns) return FETCH_LATER;
    s->due_ns = l->rate > 0 ? l->next_ns : now;
    if (l->rate > 0) l->next_ns += (int64_t)(-log(1 - rng_uniform(&l->rng)) / l->rate * 1e9);
    l->n_started++;
    s->first_ns = s->last_ns = s->n_tok = 0;
    write_request(s);
    sse_fini(&s->events);
    sse_init(&s->events, MAX_EVENT_BYTES, on_event, s);
    *r = (struct fetch_request){.url = l->url,
                                .body = s->body.p,
                                .n_body = s->body.n,
                                .headers = heads,
                                .bearer = l->remote.key,
                                .max_bytes = UINT64_MAX,
                                .stall_ms = STALL_MS,
                                .on_body = on_body,
                                .ud = s};
    return FETCH_START;
}

static int done(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e) {
    struct load *l = ud;
    const struct fetch_request r = {.url = l->url};
    if (!rc) rc = fetch_status_error(&r, reply, e);
    l->n_done++;
    const struct stream *s = &l->streams[i];
    l->n_tok += s->n_tok;
    if (s->last_ns > s->first_ns) {
        l->n_decoded += s->n_tok - 1;
        l->decode_ns += s->last_ns - s->first_ns;
    }
    if (!rc) return 0;
    l->n_failed++;
    if (!l->err.code && reply->status != 429) l->err = *e;
    return 0;
}

/* ---- a row of the table ---- */

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct samples *s, double p) {
    if (!s->n) return NAN;
    size_t i = (size_t)ceil(p * (double)s->n);
    return (double)s->ms[i ? i - 1 : 0];
}

static void sort(struct samples *s) {
    if (s->n) qsort(s->ms, s->n, sizeof *s->ms, by_value);
}

static void print_row(const struct load *l, double seconds, json_t *array) {
    static const double at[] = {0.5, 0.95, 0.99};
    double rate = (double)l->n_tok / seconds;
    double decode =
        l->decode_ns ? (double)l->n_decoded * l->n_stream * 1e9 / (double)l->decode_ns : 0;
    if (!array) {
        printf("%8d %9lld %7lld %9.1f %9.1f", l->n_stream, (long long)l->n_done,
               (long long)l->n_failed, rate, decode);
        for (int i = 0; i < 3; i++) printf(" %9.2f", percentile(&l->first, at[i]));
        for (int i = 0; i < 3; i++) printf(" %8.2f", percentile(&l->gap, at[i]));
        putchar('\n');
        fflush(stdout);
        return;
    }
    json_t *o =
        json_pack("{s:i, s:I, s:I, s:I, s:f, s:f, s:f}", "concurrency", (int)l->n_stream,
                  "requests", (json_int_t)l->n_done, "failed", (json_int_t)l->n_failed, "tokens",
                  (json_int_t)l->n_tok, "seconds", seconds, "tok_s", rate, "decode_tok_s", decode);
    for (int i = 0; i < 3 && l->first.n && l->gap.n; i++) {
        static const char *const names[][2] = {{"ttft_ms_p50", "gap_ms_p50"},
                                               {"ttft_ms_p95", "gap_ms_p95"},
                                               {"ttft_ms_p99", "gap_ms_p99"}};
        json_object_set_new(o, names[i][0], json_real(percentile(&l->first, at[i])));
        json_object_set_new(o, names[i][1], json_real(percentile(&l->gap, at[i])));
    }
    json_array_append_new(array, o);
}

static int run_row(struct load *l, json_t *array, struct err *e) {
    l->streams = mem_alloc_array((size_t)l->n_stream, sizeof *l->streams);
    if (!l->streams) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < l->n_stream; i++) {
        l->streams[i].load = l;
        buf_init(&l->streams[i].body, (size_t)64 << 20);
        sse_init(&l->streams[i].events, MAX_EVENT_BYTES, on_event, &l->streams[i]);
    }
    l->n_started = l->n_done = l->n_failed = l->n_tok = l->n_decoded = l->decode_ns = 0;
    l->first.n = l->gap.n = 0;
    l->next_ns = clock_ns();
    const struct fetch_many m = {.n = l->n_stream, .next = next, .done = done, .ud = l};
    int64_t start = clock_ns();
    int rc = fetch_many(&m, e);
    double seconds = clock_ms_since(start) * 1e-3;
    sort(&l->first);
    sort(&l->gap);
    if (!rc) print_row(l, seconds, array);
    if (!rc && l->err.code) {
        *e = l->err;
        rc = l->err.code;
    }
    if (!rc && l->out_of_memory) rc = err_set(e, CHIMERE_ENOMEM, "too many samples");
    for (int32_t i = 0; i < l->n_stream; i++) {
        buf_fini(&l->streams[i].body);
        sse_fini(&l->streams[i].events);
    }
    mem_free(l->streams);
    l->streams = NULL;
    return rc;
}

int bench_url(const struct cfg *c, struct err *e) {
    struct load l = {.n_prompt = (int32_t)cfg_int(c, "prompt"),
                     .n_gen = (int32_t)cfg_int(c, "gen"),
                     .rate = cfg_float(c, "rate")};
    int rc = remote_open(&l.remote, c, e);
    if (!rc && (l.n_prompt < 1 || l.n_gen < 1))
        rc = err_set(e, CHIMERE_EINVAL, "--prompt, --gen: expected at least 1 with --url");
    if (rc) return rc;
    rng_seed(&l.rng, rng_entropy());
    snprintf(l.url, sizeof l.url, "%s/completions", l.remote.base);
    json_t *array = cfg_bool(c, "json") ? json_array() : NULL;
    if (!array)
        printf("%s at %s: prompts of %d, answers of %d tokens; milliseconds\n"
               "%8s %9s %7s %9s %9s %9s %9s %9s %8s %8s %8s\n",
               l.remote.model, l.remote.base, l.n_prompt, l.n_gen, "streams", "requests", "failed",
               "tok/s", "decode", "ttft p50", "p95", "p99", "gap p50", "p95", "p99");
    for (const char *s = cfg_str(c, "concurrency"); !rc && *s;) {
        size_t len = strcspn(s, ",");
        char num[16];
        int64_t v;
        snprintf(num, sizeof num, "%.*s", (int)(len < 15 ? len : 15), s);
        if (!str_to_i64(num, 1, FETCH_MAX_TRANSFERS, &v)) {
            rc =
                err_set(e, CHIMERE_EINVAL, "--concurrency: expected numbers from 1 to %d, got '%s'",
                        FETCH_MAX_TRANSFERS, num);
            break;
        }
        l.n_stream = (int32_t)v;
        l.n_request = cfg_int(c, "requests");
        if (!l.n_request) l.n_request = v * 4 > 16 ? v * 4 : 16;
        rc = run_row(&l, array, e);
        s += len + (s[len] == ',');
    }
    if (array && !rc) {
        json_dumpf(array, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    }
    json_decref(array);
    mem_free(l.first.ms);
    mem_free(l.gap.ms);
    return rc;
}
