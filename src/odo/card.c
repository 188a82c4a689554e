/* card.c: see card.h. */
#include "odo/card.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"

enum { MAX_PATH = 4096, MAX_FILE = 1 << 20 };

static int path_of(const char *path, char out[MAX_PATH], struct err *e) {
    if (!path) return file_user_data("cards.json", out, MAX_PATH, e);
    size_t n = strlen(path);
    if (n >= MAX_PATH) return err_set(e, CHIMERE_ELIMIT, "the path of the cards is too long");
    memcpy(out, path, n + 1);
    return 0;
}

/* *all: a new reference to the object in the file, or to an empty object if there is no file. */
static int read_all(const char *path, json_t **all, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    *all = NULL;
    if (file_exists(path)) {
        int rc = file_read(path, MAX_FILE, &text, &n, e);
        if (rc) return rc;
        *all = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
        mem_free(text);
        if (!json_is_object(*all)) {
            json_decref(*all);
            *all = NULL;
            return err_set(e, CHIMERE_EFORMAT, "%s: expected a JSON object of cards", path);
        }
    }
    if (!*all) *all = json_object();
    return *all ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

int card_read(const char *path, const char *model, struct odo_card *card, bool *known,
              struct err *e) {
    char file[MAX_PATH];
    json_t *all = NULL;
    *card = (struct odo_card){0};
    *known = false;
    if (path_of(path, file, NULL)) return 0; /* a user without a home folder has no cards */
    int rc = read_all(file, &all, e);
    const json_t *one = json_object_get(all, model);
    if (!rc && json_is_object(one)) {
        *known = true;
        card->tools = json_is_true(json_object_get(one, "tools"));
        card->prompts = json_is_true(json_object_get(one, "prompts"));
        card->no_documents = json_is_false(json_object_get(one, "documents"));
        card->facts = json_is_true(json_object_get(one, "facts"));
        card->judge = json_is_true(json_object_get(one, "judge"));
    }
    json_decref(all);
    return rc;
}

int card_write(const char *path, const char *model, const struct odo_card *card, int64_t n_item,
               struct err *e) {
    char file[MAX_PATH];
    json_t *all = NULL;
    int rc = path_of(path, file, e);
    if (!rc) rc = read_all(file, &all, e);
    if (rc) return rc;
    json_t *one =
        json_pack("{s:b, s:b, s:b, s:b, s:b, s:I, s:I}", "tools", card->tools, "prompts",
                  card->prompts, "documents", !card->no_documents, "facts", card->facts, "judge",
                  card->judge, "items", (json_int_t)n_item, "at", (json_int_t)time(NULL));
    char *text =
        one && !json_object_set_new(all, model, one) ? json_dumps(all, JSON_INDENT(1)) : NULL;
    json_decref(all);
    if (!text) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    rc = file_write(file, text, strlen(text), e);
    mem_free(text);
    return rc;
}
