/* bench_serve.c: what HTTP costs beside the engine alone.
 *
 * Inside the window: from starting an answer, or sending its request, to its last token; clients are
 * processes of their own, so that their time is not counted as the server's. "direct" starts answers on the
 * engine; "http" streams the same chat from the server in this process. Pairs are taken in turn and the
 * median of their ratios is shown. First over a weightless model, whose tokens cost next to nothing, then
 * over a real one: chimere-nano, or the file given, on all processors but one, which sockets and clients get:
 * else threads that compute wait for one that was preempted, spinning, and that would count as the server's. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "engine/lm.h"
#include "engine/load.h"
#include "model/vocab.h"
#include "serve/serve.h"

enum { N_PAIR = 5, MAX_STREAM = 64 };

struct rig {
    struct backend_model model;
    struct backend *backend;
    struct catalog *catalog;
    struct server *s;
    int n_tok; /* of an answer */
};

static void die(const struct err *e) {
    fprintf(stderr, "bench: %s\n", e->text);
    exit(1);
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* ---- direct ---- */

static int ignore(void *ud, const struct chat_event *ev) {
    (void)ud, (void)ev;
    return 0;
}
struct first {
    int64_t ns;
};
static void note(void *ud, int32_t token, const struct sampler_probs *probs) {
    struct first *f = ud;
    (void)token, (void)probs;
    if (!f->ns) f->ns = clock_ns();
}

struct result {
    double seconds, cpu_s, first_ms;
};

static struct result direct(struct rig *r, int n_stream, int n_tok) {
    static const int32_t prompt[] = {100, 200, 300, 400, 500, 600, 700, 800};
    struct answer *a[MAX_STREAM];
    struct first first[MAX_STREAM] = {{0}};
    struct err e;
    int64_t start = clock_ns();
    double cpu = cpu_s();
    for (int i = 0; i < n_stream; i++) {
        struct answer_params p = {.job.prompt = prompt,
                                  .job.n_prompt = 8,
                                  .job.max_tokens = n_tok,
                                  .on_event = ignore,
                                  .on_token = note,
                                  .job.no_cache = true,
                                  .job.no_speculation = true,
                                  .ud = &first[i]};
        sampler_defaults(&p.job.sampling);
        p.job.sampling.ignore_eos = true;
        if (answer_start(&a[i], r->model.engine, r->model.tok, &p, &e)) die(&e);
    }
    for (int i = 0; i < n_stream; i++) answer_wait(a[i]);
    struct result out = {(double)(clock_ns() - start) * 1e-9, cpu_s() - cpu,
                         (double)(first[0].ns - start) * 1e-6};
    for (int i = 0; i < n_stream; i++) answer_free(a[i]);
    return out;
}

/* ---- over HTTP, from another process ---- */

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) exit(1);
    return fd;
}

/* Reads one stream; nanoseconds to its first piece of text on standard output of the child. */
static void stream(int port, int n_tok, int out) {
    char body[400], request[800], piece[65536];
    int n = snprintf(body, sizeof body,
                     "{\"prompt\":[100,200,300,400,500,600,700,800],\"stream\":true,\"ignore_eos\":"
                     "true,\"cache_prompt\":false,\"max_tokens\":%d}",
                     n_tok);
    n = snprintf(request, sizeof request,
                 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Content-Length: %d\r\n\r\n%s",
                 n, body);
    int fd = dial(port);
    int64_t start = clock_ns(), first = 0;
    if (write(fd, request, (size_t)n) != n) exit(1);
    ssize_t k;
    while ((k = recv(fd, piece, sizeof piece - 1, 0)) > 0) {
        piece[k] = 0;
        if (!first && strstr(piece, "\"text\":")) first = clock_ns() - start;
    }
    if (write(out, &first, sizeof first) != sizeof first) exit(1);
    exit(0);
}

static struct result http(struct rig *r, int n_stream, int n_tok) {
    int ends[2], port = serve_port(r->s);
    if (pipe(ends)) exit(1);
    fflush(stdout);
    int64_t start = clock_ns(), first = 0;
    double cpu = cpu_s();
    for (int i = 0; i < n_stream; i++)
        if (fork() == 0) stream(port, n_tok, ends[1]);
    for (int i = 0; i < n_stream; i++) wait(NULL);
    struct result out = {(double)(clock_ns() - start) * 1e-9, cpu_s() - cpu, 0};
    if (read(ends[0], &first, sizeof first) != sizeof first) exit(1);
    out.first_ms = (double)first * 1e-6;
    close(ends[0]);
    close(ends[1]);
    return out;
}

/* ---- the table ---- */

static void compare(struct rig *r, const char *what, int n_stream) {
    double ratio[N_PAIR], cost[N_PAIR], speed[N_PAIR], late[N_PAIR];
    int n_tok = r->n_tok;
    direct(r, n_stream, 16);
    http(r, n_stream, 16);
    for (int i = 0; i < N_PAIR; i++) {
        struct result d = direct(r, n_stream, n_tok), h = http(r, n_stream, n_tok);
        ratio[i] = d.seconds / h.seconds;
        cost[i] = (h.cpu_s - d.cpu_s) * 1e6 / ((double)n_tok * n_stream);
        speed[i] = (double)n_tok * n_stream / h.seconds;
    }
    for (int i = 0; i < N_PAIR; i++) late[i] = http(r, 1, 2).first_ms - direct(r, 1, 2).first_ms;
    printf("%-22s %7d %12.0f %13.1f %% %16.1f %14.2f\n", what, n_stream, median(speed, N_PAIR),
           100 * median(ratio, N_PAIR), median(cost, N_PAIR), median(late, N_PAIR));
}

static void idle(struct rig *r, int n) {
    int fds[1024];
    for (int i = 0; i < n; i++) fds[i] = dial(serve_port(r->s));
    usleep(200000);
    double cpu = cpu_s();
    usleep(2000000);
    printf("%d idle connections: %.2f %% of a core\n", n, 100 * (cpu_s() - cpu) / 2);
    for (int i = 0; i < n; i++) close(fds[i]);
}

static void open_server(struct rig *r, const char *name) {
    struct err e = {0};
    if (backend_local_new(&r->backend, &r->model, name, &e)) die(&e);
    if (catalog_new(&r->catalog, &e) || catalog_add(r->catalog, r->backend, NULL, &e)) die(&e);
    struct serve_params p = {.catalog = r->catalog};
    if (serve_open(&r->s, &p, &e)) die(&e);
}

static void close_server(struct rig *r) {
    serve_close(r->s);
    catalog_free(r->catalog);
    r->backend->ops->close(r->backend);
}

static void weightless(const struct tok *tok) {
    struct err e = {0};
    struct lm *lm;
    struct lm_fake_params f = {
        .n_vocab = (int32_t)tok_n_vocab(tok), .eos = tok_eos(tok), .n_ctx = 1 << 18, .n_seq = 8};
    struct engine_params p;
    engine_defaults(&p);
    p.n_seq = 8;
    p.n_ctx = 1 << 18;
    p.n_ctx_seq = 1 << 15;
    p.speculate = false;
    struct rig r = {.model = {.tok = tok, .n_seq = 8}, .n_tok = 2000};
    if (lm_open_fake(&lm, &f, &e) || engine_new_over(&r.model.engine, lm, tok, &p, &e)) die(&e);
    open_server(&r, "weightless");
    compare(&r, "weightless", 1);
    compare(&r, "weightless", 8);
    idle(&r, 200);
    close_server(&r);
    engine_free(r.model.engine);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "build/release/chimere-nano.gguf";
    struct err e = {0};
    struct load_params how;
    struct loaded l;
    load_defaults(&how);
    how.path = path;
    how.quiet = true;
    how.no_fit = true;
    how.plan.n_seq = 8;
    how.plan.n_ctx = 1024;
    how.n_thread = pool_default_threads() - 1;
    if (how.n_thread < 1) how.n_thread = 1;
    if (load_open(&l, &how, &e)) die(&e);
    printf("%-22s %7s %12s %15s %16s %14s\n", "model", "streams", "http tok/s", "http / direct",
           "server us/token", "later TTFT ms");
    weightless(l.tok);
    struct rig r = {.model = {.m = l.model,
                              .engine = l.engine,
                              .tok = l.tok,
                              .template = l.template,
                              .n_seq = 8},
                    .n_tok = argc > 2 ? atoi(argv[2]) : 200};
    open_server(&r, "model");
    const char *base = strrchr(path, '/');
    compare(&r, base ? base + 1 : path, 1);
    compare(&r, base ? base + 1 : path, 8);
    close_server(&r);
    load_close(&l);
    return 0;
}
