/* ngram_memory.c: see ngram_memory.h. */
#include "engine/ngram_memory.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engram/recall.h"

struct ngram_memory {
    struct engram_use use;
    struct engram_lease *leases[ENGRAM_MAX_TABLES]; /* owned */
    struct engram_recall *recall;                   /* owned; NULL: none */
};

/* If the last message is from a user, *text is its text as a new reference, else NULL. */
static json_t *question_of(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content"), *part;
    const char *role = json_string_value(json_object_get(last, "role"));
    size_t i;
    if (!role || strcmp(role, "user") != 0) return NULL;
    if (json_is_string(content)) return json_incref((json_t *)content);
    json_array_foreach(content, i, part) {
        json_t *text = json_object_get(part, "text");
        if (json_is_string(text)) return json_incref(text);
    }
    return NULL;
}

int ngram_memory_open(struct ngram_memory **out, const struct ngram_memory_params *p,
                      struct err *e) {
    *out = NULL;
    size_t most = ENGRAM_MAX_TABLES - (p->own[0] != NULL) - (p->own[1] != NULL);
    if (p->n_table > most)
        return err_set(e, CHIMERE_ELIMIT, "engram.tables: expected at most %zu, got %zu", most,
                       p->n_table);
    struct ngram_memory *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    m->use.alpha = p->alpha;
    for (size_t i = 0; i < p->n_table && !rc; i++) {
        bool is_path =
            p->is_trusted && (strchr(p->tables[i], '/') || str_ends(p->tables[i], ".engram") ||
                              str_ends(p->tables[i], ".engr"));
        rc = is_path ? engram_store_take_path(p->store, p->tables[i], &m->leases[i], e)
                     : engram_store_take(p->store, p->owner, p->tables[i], &m->leases[i], e);
        if (!rc) m->use.tables[m->use.n_table++] = engram_lease_table(m->leases[i]);
        /* optional tables may be absent, or belong to another model's tokenizer */
        if ((rc == CHIMERE_ENOENT || rc == CHIMERE_EMISMATCH) && p->is_optional) rc = 0;
    }
    for (size_t i = 0; !rc && i < sizeof p->own / sizeof *p->own; i++)
        if (p->own[i]) m->use.tables[m->use.n_table++] = p->own[i];
    json_t *question = rc || !p->recall || !(p->alpha > 0) ? NULL
                       : p->question                       ? json_string(p->question)
                                                           : question_of(p->messages);
    if (question)
        rc = engram_recall_new(&m->recall, m->use.tables, m->use.n_table, p->tok,
                               json_string_value(question), json_string_length(question), e);
    json_decref(question);
    m->use.recall = m->recall;
    if (rc) {
        ngram_memory_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

void ngram_memory_close(struct ngram_memory *m) {
    if (!m) return;
    for (int i = 0; i < ENGRAM_MAX_TABLES; i++) engram_lease_return(m->leases[i]);
    engram_recall_free(m->recall);
    mem_free(m);
}

const struct engram_use *ngram_memory_use(const struct ngram_memory *m) {
    return m ? &m->use : NULL;
}

static bool hook_wants(void *ud) { return engram_mixer_wants(ud); }
static void hook_apply(void *ud, float *logits, int32_t n_vocab) {
    (void)n_vocab; /* the mixer was created for this vocabulary */
    engram_mixer_apply(ud, logits);
}
static int32_t hook_list(void *ud, const int32_t *ahead, int32_t n_ahead, int32_t *out,
                         int32_t cap) {
    return engram_mixer_list(ud, ahead, n_ahead, out, cap);
}
static void hook_apply_few(void *ud, float *logits, const struct sampler_sums *sums) {
    const struct engram_row row = {.norm = sums->norm,
                                   .entropy = sums->entropy,
                                   .p_first = sums->p_first,
                                   .p_second = sums->p_second,
                                   .first = sums->first};
    engram_mixer_apply_few(ud, logits, &row);
}
static void hook_accept(void *ud, int32_t token) { engram_mixer_push(ud, token); }

struct sampler_hook ngram_memory_hook(struct engram_mixer *m) {
    return (struct sampler_hook){.wants = hook_wants,
                                 .apply = hook_apply,
                                 .accept = hook_accept,
                                 .list = hook_list,
                                 .apply_few = hook_apply_few,
                                 .ud = m};
}
