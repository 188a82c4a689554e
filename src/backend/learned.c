#include "backend/learned.h"

#include <string.h>

#include "backend/shots.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"

struct learned {
    pthread_mutex_t lock;
    struct learned_version *current, *trial; /* owned, NULL: none */
    struct learned_version *old;             /* owned: replaced, perhaps in use; a list */
    double share;
};

void learned_version_free(struct learned_version *v) {
    if (!v) return;
    if (v->table) engram_table_close(v->table);
    for (int32_t i = 0; i < v->n_copy; i++) lora_close(v->copies[i]);
    if (v->lora) lora_close(v->lora);
    json_decref(v->rules);
    json_decref(v->shots);
    mem_free(v);
}

json_t *learned_messages(const char *rules, const json_t *shots, json_t *messages) {
    const char *first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    bool has_own = first && (!strcmp(first, "system") || !strcmp(first, "developer"));
    if (has_own || !json_is_array(messages)) return json_incref(messages);
    json_t *shown = shots_place(shots, messages);
    if (!shown || !rules || !*rules) return shown;
    json_t *all = json_pack("[{s:s,s:s}]", "role", "system", "content", rules);
    int failed = !all || json_array_extend(all, shown);
    json_decref(shown);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

int learned_new(struct learned **out, struct err *e) {
    struct learned *l = *out = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&l->lock, NULL);
    return 0;
}

void learned_free(struct learned *l) {
    if (!l) return;
    learned_switch(l, NULL, NULL, 0);
    learned_sweep(l);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

static void retire(struct learned *l, struct learned_version *v) {
    if (!v) return;
    v->next = l->old;
    l->old = v;
}

void learned_switch(struct learned *l, struct learned_version *current,
                    struct learned_version *trial, double share) {
    pthread_mutex_lock(&l->lock);
    retire(l, l->current);
    retire(l, l->trial);
    l->current = current;
    l->trial = trial;
    l->share = share;
    pthread_mutex_unlock(&l->lock);
}

bool learned_sweep(struct learned *l) {
    struct learned_version *unused = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct learned_version **at = &l->old; *at;) {
        struct learned_version *v = *at;
        if (v->n_use) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        v->next = unused;
        unused = v;
    }
    bool is_empty = !l->old;
    pthread_mutex_unlock(&l->lock);
    while (unused) {
        struct learned_version *v = unused;
        unused = v->next;
        learned_version_free(v);
    }
    return is_empty;
}

uint64_t learned_conversation(const struct request *a) {
    const char *text = json_string_value(a->prompt);
    const json_t *m;
    size_t i;
    json_array_foreach(a->messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user") != 0) continue;
        text = json_string_value(json_object_get(m, "content"));
        break;
    }
    return text ? hash_bytes(text, strlen(text), a->scope) : a->scope;
}

struct learned_version *learned_take(struct learned *l, uint64_t conversation) {
    if (!l) return NULL;
    double at = (double)(hash_mix(conversation) >> 11) * 0x1p-53;
    pthread_mutex_lock(&l->lock);
    struct learned_version *v = l->share > 0 && at < l->share ? l->trial : l->current;
    if (v) v->n_use++;
    pthread_mutex_unlock(&l->lock);
    return v;
}

void learned_return(struct learned *l, struct learned_version *v) {
    if (!v) return;
    pthread_mutex_lock(&l->lock);
    v->n_use--;
    pthread_mutex_unlock(&l->lock);
}

struct limits learned_limits(struct learned *l, uint64_t conversation) {
    struct learned_version *v = learned_take(l, conversation);
    struct limits limits = v ? v->limits : limits_default();
    learned_return(l, v);
    return limits;
}

char *learned_rules(struct learned *l, uint64_t conversation, const char *pipeline,
                    int64_t *night) {
    struct learned_version *v = learned_take(l, conversation);
    const char *text = json_string_value(json_object_get(v ? v->rules : NULL, pipeline));
    char *rules = text ? mem_strdup(text) : NULL;
    *night = v ? v->night : 0;
    learned_return(l, v);
    return rules;
}
