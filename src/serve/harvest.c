#include "serve/harvest.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "learn/data/collect.h"
#include "odo/memory.h"
#include "serve/api/gen.h"
#include "serve/http/http_impl.h"
#include "store/quality.h"

struct harvest {
    const char *const *keys; /* borrowed [n_key] */
    size_t n_key;
    struct store *store;     /* borrowed */
    struct quality *quality; /* owned */
};

int harvest_open(struct harvest **out, const char *const *keys, size_t n_key, struct backend *judge,
                 struct store *store, struct err *e) {
    *out = NULL;
    struct harvest *h = mem_zalloc(sizeof *h);
    if (!h) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    *h = (struct harvest){.keys = keys, .n_key = n_key, .store = store};
    int rc = quality_open(&h->quality, judge, store, e);
    if (rc) mem_free(h);
    else *out = h;
    return rc;
}

void harvest_close(struct harvest *h) {
    if (!h) return;
    quality_close(h->quality);
    mem_free(h);
}

static bool has_agreed(const struct harvest *h, const struct auth_key *key) {
    const char *name = key ? auth_name(key) : MEMORY_LOCAL;
    for (size_t i = 0; i < h->n_key; i++)
        if (!strcmp(h->keys[i], name)) return true;
    return false;
}

bool harvest_wants(const struct harvest *h, const struct gen *g) {
    const struct request *q = &g->request;
    bool is_own = g->backend->model && !g->entry; /* the model that nightly training changes */
    bool is_free = q->format == REQUEST_TEXT && !json_array_size(q->tools) && !q->extra &&
                   q->search == REQUEST_NO_SEARCH && !q->continue_last && !q->no_answer;
    return h && is_own && is_free && q->n == 1 && !g->prompts && q->n_lora < 0 &&
           request_lone_question(q->messages) && has_agreed(h, g->r->key);
}

void harvest_take(struct harvest *h, const struct gen *g) {
    const struct gen_choice *c = &g->choices[0];
    size_t n_secret = 0;
    char owner[MEMORY_MAX_OWNER], *question = NULL, *answer = NULL;
    if (c->end.finish != FINISH_STOP || c->n_call || !c->content.n ||
        c->content.n > COLLECT_MAX_TEXT ||
        strlen(request_lone_question(g->request.messages)) > COLLECT_MAX_TEXT)
        return;
    memory_owner(g->request.owner, g->request.user, owner);
    question = learn_masked(request_lone_question(g->request.messages), &n_secret);
    answer = learn_masked(c->content.p, &n_secret);
    const struct quality_answer a = {.name = g->id,
                                     .route = "",
                                     .owner = owner,
                                     .night = g->night,
                                     .question = question,
                                     .answer = answer,
                                     .score = NAN,
                                     .keep = true,
                                     .keep_short = true};
    if (question && answer) quality_post(h->quality, &a);
    mem_free(question);
    mem_free(answer);
}

int harvest_feedback(struct harvest *h, const char *answer, int32_t score, const char *comment,
                     struct err *e) {
    return store_quality_feedback(h->store, answer, score, comment, e);
}

int harvest_correct(struct harvest *h, const char *answer, const char *correction, struct err *e) {
    size_t n_secret = 0;
    char *text = learn_masked(correction, &n_secret);
    int rc = text ? store_quality_correct(h->store, answer, text, 0, e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(text);
    return rc;
}
