#include "backend/ngram_field.h"

#include <string.h>

/* Reads {"tables", "alpha", "recall"} into p and names [ENGRAM_MAX_TABLES]. */
static int read_field(struct ngram_memory_params *p, const json_t *field, const char **names,
                      struct err *e) {
    const char *key;
    json_t *v, *name;
    size_t i;
    if (!json_is_object(field))
        return err_set(e, CHIMERE_EINVAL, "engram: expected an object with tables and alpha");
    json_object_foreach((json_t *)field, key, v) {
        if (strcmp(key, "alpha") == 0) {
            double x = json_number_value(v);
            if (!json_is_number(v) || !(x >= 0 && x <= 100))
                return err_set(e, CHIMERE_EINVAL, "engram.alpha: expected a number from 0 to 100");
            p->alpha = (float)x;
        } else if (strcmp(key, "recall") == 0) {
            if (!json_is_boolean(v))
                return err_set(e, CHIMERE_EINVAL, "engram.recall: expected true or false");
            p->recall = json_is_true(v);
        } else if (strcmp(key, "optional") == 0) {
            if (!json_is_boolean(v))
                return err_set(e, CHIMERE_EINVAL, "engram.optional: expected true or false");
            p->is_optional = json_is_true(v);
        } else if (strcmp(key, "tables") != 0) {
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "engram.%.40s: unknown field; expected tables, alpha, recall, optional",
                           key);
        }
    }
    const json_t *tables = json_object_get(field, "tables");
    if (!json_is_array(tables) || json_array_size(tables) > ENGRAM_MAX_TABLES)
        return err_set(e, CHIMERE_EINVAL, "engram.tables: expected a list of at most %d names",
                       ENGRAM_MAX_TABLES);
    json_array_foreach(tables, i, name) {
        if (!json_is_string(name))
            return err_set(e, CHIMERE_EINVAL, "engram.tables: expected names");
        names[p->n_table++] = json_string_value(name);
    }
    if (p->is_optional && !p->store) p->n_table = 0;
    if (p->n_table && !p->store)
        return err_set(e, CHIMERE_EUNSUPPORTED, "engram: this server has no tables");
    return 0;
}

int ngram_field_open(struct ngram_memory **out, struct engram_store *store, const struct request *a,
                     const struct engram_table *learned, const struct tok *tok, struct err *e) {
    const char *names[ENGRAM_MAX_TABLES];
    const json_t *field = json_object_get(a->extra, "engram");
    struct ngram_memory_params p = {.store = store,
                                    .tables = names,
                                    .alpha = 1,
                                    .recall = true,
                                    .messages = a->messages,
                                    .question = a->recall,
                                    .own = {a->table, learned},
                                    .owner = a->owner,
                                    .tok = tok};
    *out = NULL;
    int rc = field && !json_is_null(field) ? read_field(&p, field, names, e) : 0;
    return rc || (!p.n_table && !a->table && !learned) ? rc : ngram_memory_open(out, &p, e);
}
