/* serve_rig.h: a server over a weightless model with a given script, and a client of it over plain sockets.
 * Shared by the test programs of the server; cmocka.h comes first. */
#ifndef CHIMERE_TEST_SERVE_RIG_H
#define CHIMERE_TEST_SERVE_RIG_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/lm.h"
#include "model/vocab.h"
#include "serve/serve.h"

#include "await.h"

#define RIG_FN static __attribute__((unused))

static int32_t rig_n_run_ok;     /* before the device fails; 0: it does not */
static uint64_t rig_cache_bytes; /* of the prompt cache; 0: none */
static const char *rig_shared;   /* folder of shared answers; NULL: none */
static struct gguf *file;
static struct tok *tok;
static struct chat_template *template;

struct rig {
    struct engine *engine;
    struct backend *backend;
    struct catalog *catalog;
    struct server *s;
    struct backend_model model;
    int32_t *script;
    size_t n_script;
    int port;
};

/* ---- rig ---- */

RIG_FN int open_model(void **state) {
    struct err e = {0};
    (void)state;
    if (gguf_open(&file, TEST_NANO, &e) || vocab_load(&tok, file, &e)) fail_msg("%s", e.text);
    struct slice t = vocab_chat_template(file, NULL);
    if (chat_template_new(&template, t.p, t.n, &e)) fail_msg("%s", e.text);
    return 0;
}

RIG_FN int close_model(void **state) {
    (void)state;
    chat_template_free(template);
    tok_free(tok);
    gguf_close(file);
    return 0;
}

RIG_FN void rig_open(struct rig *r, const char *answer, int delay_us, struct serve_params p,
                     int n_seq) {
    struct err e = {0};
    struct lm *lm;
    *r = (struct rig){.port = 0};
    if (answer &&
        tok_encode(tok, answer, strlen(answer), true, false, &r->script, &r->n_script, &e))
        fail_msg("%s", e.text);
    struct lm_fake_params f = {.n_vocab = (int32_t)tok_n_vocab(tok),
                               .eos = tok_eos(tok),
                               .n_ctx = 65536,
                               .n_seq = n_seq,
                               .delay_us = delay_us,
                               .n_run_ok = rig_n_run_ok,
                               .script = answer ? r->script : NULL,
                               .n_script = (int32_t)r->n_script};
    struct engine_params ep;
    engine_defaults(&ep);
    ep.n_seq = n_seq;
    ep.n_ctx = 65536;
    ep.n_ctx_seq = 65536 / n_seq;
    ep.speculate = false;
    ep.cache.ram_bytes = rig_cache_bytes;
    if (lm_open_fake(&lm, &f, &e) || engine_new_over(&r->engine, lm, tok, &ep, &e))
        fail_msg("%s", e.text);
    r->model = (struct backend_model){.engine = r->engine,
                                      .tok = tok,
                                      .template = template,
                                      .n_seq = n_seq,
                                      .shared_dir = rig_shared};
    if (backend_local_new(&r->backend, &r->model, "fake", &e)) fail_msg("%s", e.text);
    if (catalog_new(&r->catalog, &e) || catalog_add(r->catalog, r->backend, NULL, &e))
        fail_msg("%s", e.text);
    p.catalog = r->catalog;
    if (serve_open(&r->s, &p, &e)) fail_msg("%s", e.text);
    r->port = serve_port(r->s);
}

RIG_FN void rig_close(struct rig *r) {
    serve_close(r->s);
    catalog_free(r->catalog);
    r->backend->ops->close(r->backend);
    engine_free(r->engine);
    mem_free(r->script);
}

/* ---- a client ---- */

RIG_FN int dial(const struct rig *r) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)r->port)};
    struct timeval limit = {.tv_sec = 20 * TEST_SLOWNESS};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

RIG_FN void say(int fd, const char *text, size_t n) {
    while (n) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0) return; /* the server may have had enough */
        text += k;
        n -= (size_t)k;
    }
}

RIG_FN void post(int fd, const char *path, const char *body, size_t n, const char *headers) {
    char head[1024];
    int k = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n", path,
                     headers ? headers : "Connection: close\r\n", n);
    say(fd, head, (size_t)k);
    say(fd, body, n);
}

static struct buf reply; /* of the last call; the next one frees it */

RIG_FN const char *hear(int fd) { /* to the end */
    char piece[65536];
    ssize_t k;
    buf_fini(&reply);
    buf_init(&reply, (size_t)64 << 20);
    while ((k = recv(fd, piece, sizeof piece, 0)) > 0) buf_put(&reply, piece, (size_t)k);
    close(fd);
    return reply.p ? reply.p : "";
}

RIG_FN const char *call(const struct rig *r, const char *path, const char *body) {
    int fd = dial(r);
    post(fd, path, body, strlen(body), NULL);
    return hear(fd);
}

RIG_FN const char *get(const struct rig *r, const char *path, const char *headers) {
    char head[512];
    int fd = dial(r);
    int k = snprintf(head, sizeof head,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", path,
                     headers ? headers : "");
    say(fd, head, (size_t)k);
    return hear(fd);
}

RIG_FN int status_of(const char *answer) {
    return strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
}

RIG_FN json_t *body_of(const char *answer) {
    const char *body = strstr(answer, "\r\n\r\n");
    json_t *j = body ? json_loads(body + 4, 0, NULL) : NULL;
    if (!j) fail_msg("no JSON body: %.300s", answer);
    return j;
}

RIG_FN const char *text_at(json_t *j, const char *path) { /* "choices.0.message.content" */
    char key[64];
    while (j && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(key)) : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return json_is_string(j) ? json_string_value(j) : NULL;
}

/* The data lines of a stream, one after the other; chunk sizes are skipped by looking at lines only. */
RIG_FN json_t *next_frame(const char **at) {
    const char *line = strstr(*at, "data: ");
    if (!line) return NULL;
    *at = line + 6;
    json_t *j = json_loads(line + 6, JSON_DISABLE_EOF_CHECK, NULL);
    return j ? j : json_null();
}

RIG_FN int32_t n_active(const struct rig *r) {
    struct engine_totals t;
    engine_totals(r->engine, &t);
    return t.n_active;
}
RIG_FN int64_t n_generated(const struct rig *r) {
    struct engine_totals t;
    engine_totals(r->engine, &t);
    return t.n_generated;
}

RIG_FN bool wait_active(const struct rig *r, int32_t n) {
    AWAIT(n_active(r) == n);
    return n_active(r) == n;
}

/* Until n requests wait for a slot. */
RIG_FN void wait_waiting(const struct rig *r, int n) {
    char line[64];
    snprintf(line, sizeof line, "chimere_waiting{model=\"fake\"} %d\n", n);
    AWAIT(strstr(get(r, "/metrics", NULL), line));
    assert_non_null(strstr(reply.p, line));
}

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define CALC                                                                                       \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"calculator\",\"parameters\":{"     \
    "\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\"}},\"required\":["     \
    "\"expression\"]}}}]"

#endif
