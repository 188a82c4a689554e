/* chat_local.c: answers of the chat from a model in this process. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/args/chat_args.h"
#include "cli/chat/chat_backend.h"

struct local {
    struct chat_backend b;
    struct chat_rig rig;
    int done[2]; /* owned: a pipe that wakes the waiting thread at the end of the answer */
};

struct turn {
    const struct chat_ask *request;
    int done_fd;
};

static int on_event(void *ud, const struct chat_event *ev) {
    const struct chat_ask *q = ((struct turn *)ud)->request;
    if (ev->kind == CHAT_CONTENT || ev->kind == CHAT_REASONING)
        q->on_text(q->ud, ev->kind == CHAT_REASONING, ev->text, ev->n);
    return 0;
}

static void on_done(void *ud) {
    while (write(((struct turn *)ud)->done_fd, "", 1) < 0 && errno == EINTR) {}
}

/* Waits until the answer has ended, and cancels it if a stop is requested. Returns true if it was cancelled. */
static bool await(const struct local *l, struct answer *a, int stop_fd) {
    struct pollfd fds[2] = {{.fd = l->done[0], .events = POLLIN},
                            {.fd = stop_fd, .events = POLLIN}};
    bool stopped = false;
    char byte;
    for (;;) {
        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (fds[1].revents && read(stop_fd, &byte, 1) == 1) {
            answer_cancel(a);
            stopped = true;
        }
        if (fds[0].revents && read(l->done[0], &byte, 1) == 1) break;
    }
    answer_wait(a);
    return stopped && answer_finish(a) == FINISH_CANCELLED;
}

static int local_ask(struct chat_backend *b, const struct chat_ask *q, struct chat_reply *r,
                     struct err *e) {
    struct local *l = (struct local *)b;
    int32_t *ids = NULL;
    size_t n = 0;
    bool in_think = false;
    struct ngram_memory *memory = NULL;
    *r = (struct chat_reply){.message = NULL};
    int rc = chat_rig_encode(&l->rig, q->messages, NULL, q->think, &ids, &n, &in_think, e);
    if (!rc) rc = chat_rig_memory(&l->rig, q->c, q->messages, &memory, e);
    struct turn turn = {.request = q, .done_fd = l->done[1]};
    struct chat_parse_spec parse = {.calls = chat_template_frames(l->rig.template),
                                    .no_calls = true,
                                    .reasoning = true,
                                    .in_think = in_think};
    struct answer_params p = {.job.prompt = ids,
                              .job.n_prompt = (int32_t)n,
                              .job.max_tokens = (int32_t)cfg_int(q->c, "n-predict"),
                              .job.loras = l->rig.loras,
                              .job.n_lora = l->rig.n_lora,
                              .job.engram = ngram_memory_use(memory),
                              .parse = &parse,
                              .on_event = on_event,
                              .on_done = on_done,
                              .ud = &turn};
    chat_rig_sampling(&l->rig, q->c, in_think, &p.job.sampling);
    struct answer *a = NULL;
    if (!rc) rc = answer_start(&a, l->rig.engine, l->rig.tok, &p, e);
    if (!rc) {
        bool stopped = await(l, a, q->stop_fd);
        rc = answer_err(a)->code;
        if (rc) *e = *answer_err(a);
        const struct engine_stats *st = answer_stats(a);
        *r = (struct chat_reply){.end = stopped                             ? CHAT_END_STOPPED
                                        : answer_finish(a) == FINISH_LENGTH ? CHAT_END_LENGTH
                                                                            : CHAT_ENDED,
                                 .n_prompt = st->n_prompt,
                                 .n_generated = st->n_generated,
                                 .prefill_ms = st->prefill_ms,
                                 .decode_ms = st->decode_ms};
        if (!rc && !(r->message = chat_parser_message(answer_parser(a))))
            rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        answer_free(a);
    }
    ngram_memory_close(memory);
    mem_free(ids);
    return rc;
}

static void local_close(struct chat_backend *b) {
    struct local *l = (struct local *)b;
    chat_rig_close(&l->rig);
    for (int i = 0; i < 2; i++)
        if (l->done[i] >= 0) close(l->done[i]);
    mem_free(l);
}

int chat_local_open(struct chat_backend **out, const struct cfg *c, struct err *e) {
    *out = NULL;
    struct local *l = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    l->b = (struct chat_backend){.request = local_ask, .close = local_close};
    l->done[0] = l->done[1] = -1;
    int rc = pipe(l->done) ? err_set(e, CHIMERE_EIO, "cannot make a pipe") : 0;
    if (!rc) rc = chat_rig_open(&l->rig, c, 1, e);
    if (!rc && !l->rig.template) {
        rc = err_set(e, CHIMERE_EUNSUPPORTED, "%s has no chat template", l->rig.loaded.name);
        err_hint(e, "chimere run --raw continues a text with it");
    }
    if (rc) {
        local_close(&l->b);
        return rc;
    }
    snprintf(l->b.name, sizeof l->b.name, "%s", l->rig.loaded.name);
    *out = &l->b;
    return 0;
}
