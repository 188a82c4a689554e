/* api_recommend.c: GET /chimere/v1/recommend: models of the curated list that fit this machine (docs/recommend.md).
 *
 * The response is cached for a minute: timing the processor takes about a second. One request at a time does it. */
#include "backend/catalog/recommend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "serve/http/http_impl.h"
#include "serve/api/api.h"

enum { KEEP_S = 60, MAX_OUT = 1 << 20 };

/* Call with recommend_lock held. */
static int refresh(struct server *s, struct err *e) {
    struct dev *dev = NULL;
    json_t *all = NULL;
    if (s->recommend && clock_ns() - s->recommend_ns < (int64_t)KEEP_S * 1000000000) return 0;
    int rc = cpu_open(&dev, 0, CPU_ISA_BEST, e);
    if (rc) return rc;
    rc = recommend_json(&all, dev, NULL, 0, e);
    dev->ops->close(dev);
    if (rc) return rc;
    json_decref(s->recommend);
    s->recommend = all;
    s->recommend_ns = clock_ns();
    return 0;
}

void api_recommend(struct http_request *r) {
    struct server *s = http_server(r);
    struct err e = {0};
    struct buf out;
    buf_init(&out, MAX_OUT);
    pthread_mutex_lock(&s->recommend_lock);
    int rc = refresh(s, &e);
    char *text = rc ? NULL : json_dumps(s->recommend, JSON_COMPACT | JSON_REAL_PRECISION(6));
    pthread_mutex_unlock(&s->recommend_lock);
    if (!rc && !text) rc = err_set(&e, CHIMERE_ENOMEM, "out of memory");
    if (text) buf_puts(&out, text);
    mem_free(text);
    if (rc) http_fail(r, &e);
    else http_reply(r, 200, NULL, &out);
    buf_fini(&out);
}
