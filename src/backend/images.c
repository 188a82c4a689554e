#include "backend/images.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

enum { NUMBER_AT = 26, MARK_BYTES = 29 };
static const char mark_head[] = "<picture:"; /* then the secret, a colon, two digits and ">" */

static bool is_image(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, "image_url") == 0;
}

int images_refuse(const json_t *messages, struct err *e) {
    size_t i, k;
    const json_t *m, *part;
    json_array_foreach(messages, i, m) {
        const json_t *content = json_object_get(m, "content");
        json_array_foreach(content, k, part) if (is_image(part)) {
            err_set(
                e, CHIMERE_EUNSUPPORTED,
                "messages[%zu].content[%zu].type: expected text, got an image; this model reads "
                "text only",
                i, k);
            err_hint(e, "a model that is loaded with --mmproj sees images");
            return CHIMERE_EUNSUPPORTED;
        }
    }
    return 0;
}

/* data:[TYPE];base64,DATA */
static int open_one(struct images *im, const json_t *part, struct err *e) {
    const json_t *url = json_object_get(json_object_get(part, "image_url"), "url");
    const char *s = json_string_value(url), *comma = s ? strchr(s, ',') : NULL;
    if (!comma || !str_starts(s, "data:") || comma - s < 12 || memcmp(comma - 7, ";base64", 7) != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "image_url.url: expected data:image/...;base64,DATA; addresses are not "
                       "fetched");
    size_t n = json_string_length(url) - (size_t)(comma + 1 - s);
    if (n > (size_t)VISION_MAX_BYTES / 3 * 4 + 8)
        return err_set(e, CHIMERE_ELIMIT, "image_url.url: expected an image of at most %d bytes",
                       VISION_MAX_BYTES);
    char *bytes = mem_alloc(n + 1);
    if (!bytes) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    size_t n_byte = 0;
    int rc = str_base64((struct slice){comma + 1, n}, bytes, &n_byte)
                 ? vision_open(im->vision, bytes, n_byte, &im->list[im->n], e)
                 : err_set(e, CHIMERE_EINVAL, "expected base64");
    mem_free(bytes);
    if (rc) err_prefix(e, "image_url.url");
    else im->n++;
    return rc;
}

static json_t *mark_of(const struct images *im, int32_t k) {
    char mark[MARK_BYTES + 1];
    snprintf(mark, sizeof mark, "%s%016llx:%02u>", mark_head, (unsigned long long)im->secret,
             (unsigned)k % 100);
    return json_pack("{s:s,s:s}", "type", "text", "text", mark);
}

static int mark_content(struct images *im, const json_t *content, json_t *out, struct err *e) {
    size_t k;
    json_t *part;
    json_array_foreach(content, k, part) {
        if (!is_image(part)) {
            json_array_append(out, part);
            continue;
        }
        int rc = im->n < IMAGES_MAX
                     ? open_one(im, part, e)
                     : err_set(e, CHIMERE_ELIMIT, "expected at most %d images", IMAGES_MAX);
        if (rc) err_prefix(e, "content[%zu]", k);
        if (rc) return rc;
        if (json_array_append_new(out, mark_of(im, im->n - 1)))
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    return 0;
}

static bool has_image(const json_t *content) {
    size_t k;
    const json_t *part;
    json_array_foreach(content, k, part) if (is_image(part)) return true;
    return false;
}

int images_open(struct images *im, struct vision *v, json_t *messages, json_t **marked,
                struct err *e) {
    size_t i;
    json_t *m;
    *im = (struct images){.vision = v, .secret = rng_entropy()};
    *marked = NULL;
    int rc = v ? 0 : images_refuse(messages, e);
    json_t *out = rc ? NULL : json_array();
    json_array_foreach(messages, i, m) {
        json_t *content = json_object_get(m, "content");
        if (rc || !has_image(content)) {
            json_array_append(out, m);
            continue;
        }
        json_t *copy = json_copy(m), *list = json_array();
        rc = mark_content(im, content, list, e);
        if (rc) err_prefix(e, "messages[%zu]", i);
        json_object_set_new(copy, "content", list);
        json_array_append_new(out, copy);
    }
    if (!rc && json_array_size(out) != json_array_size(messages))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) json_decref(out);
    else *marked = out;
    return rc;
}

void images_close(struct images *im) {
    for (int32_t i = 0; i < im->n; i++) vision_close(im->vision, im->list[i]);
    mem_free(im->runs);
    *im = (struct images){.n = 0};
}

const struct vision_image *images_find(const struct images *im, const char *text, size_t n,
                                       size_t *at, size_t *n_mark) {
    char head[NUMBER_AT + 1];
    if (!im->n || !n) return NULL;
    snprintf(head, sizeof head, "%s%016llx:", mark_head, (unsigned long long)im->secret);
    const char *found = memmem(text, n, head, NUMBER_AT);
    if (!found || text + n - found < MARK_BYTES) return NULL;
    const char *digit = found + NUMBER_AT;
    if (digit[0] < '0' || digit[0] > '9' || digit[1] < '0' || digit[1] > '9') return NULL;
    int32_t k = (digit[0] - '0') * 10 + digit[1] - '0';
    if (k >= im->n) return NULL;
    *at = (size_t)(found - text);
    *n_mark = MARK_BYTES;
    return im->list[k];
}

int images_place(struct images *im, const struct vision_image *i, size_t at, struct err *e) {
    if (im->n_run + i->n_run > im->cap_run) {
        int32_t cap = 2 * im->cap_run + i->n_run;
        struct job_image *runs = mem_realloc(im->runs, (size_t)cap * sizeof *runs);
        if (!runs) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        im->runs = runs;
        im->cap_run = cap;
    }
    if (at + (size_t)i->n_tok > INT32_MAX)
        return err_set(e, CHIMERE_ELIMIT, "the prompt is too long");
    for (int32_t k = 0; k < i->n_run; k++) {
        im->runs[im->n_run] = i->runs[k];
        im->runs[im->n_run++].at += (int32_t)at;
    }
    return 0;
}
