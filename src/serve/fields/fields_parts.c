/* fields_parts.c: converts parts and blocks of a message's content, of all APIs, to text.
 *
 * Documents and search results are read if they are text, images are passed on, and audio is refused. In a tool's
 * result, images and audio are replaced by a note instead, so that the session can continue. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "serve/fields/fields_parts.h"
#include "serve/fields/fields_impl.h"

enum { MAX_TEXT = 64 << 20 };

typedef int part_fn(const json_t *p, const char *where, struct buf *out, struct err *e);

static void put(struct buf *out, const json_t *s) {
    buf_put(out, json_string_value(s), json_string_length(s));
}

static int put_text(const json_t *text, const char *where, struct buf *out, struct err *e) {
    if (!json_is_string(text)) return err_set(e, CHIMERE_EINVAL, "%s.text: expected a text", where);
    put(out, text);
    return 0;
}

static int part_text(const json_t *p, const char *where, struct buf *out, struct err *e) {
    return put_text(json_object_get(p, "text"), where, out, e);
}
static int part_refusal(const json_t *p, const char *where, struct buf *out, struct err *e) {
    return put_text(json_object_get(p, "refusal"), where, out, e);
}

/* Decodes base64, which must contain UTF-8 text. */
static int put_base64(const json_t *data, const char *where, struct buf *out, struct err *e) {
    const char *s = json_string_value(data);
    size_t n = s ? strlen(s) : 0;
    char *bytes = mem_alloc(n + 1);
    if (!bytes) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!str_base64((struct slice){s, n}, bytes, &n)) {
        mem_free(bytes);
        return err_set(e, CHIMERE_EINVAL, "%s: expected base64", where);
    }
    json_t *text = s && n <= MAX_TEXT ? json_stringn(bytes, n) : NULL;
    mem_free(bytes);
    if (!text) return err_set(e, CHIMERE_EINVAL, "%s: expected base64 of UTF-8 text", where);
    put(out, text);
    json_decref(text);
    return 0;
}

static int no_text(const char *where, const char *what, struct err *e) {
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s: expected text, got %.60s; this model reads text only", where,
                   what ? what : "nothing");
}

/* {"type":"text","data"}, {"type":"content","content"}, {"type":"base64","media_type":"text/..","data"} */
static int part_document(const json_t *p, const char *where, struct buf *out, struct err *e) {
    static const char *const heads[] = {"title", "context"};
    const json_t *source = json_object_get(p, "source"), *data = json_object_get(source, "data");
    const char *type = json_string_value(json_object_get(source, "type"));
    const char *media = json_string_value(json_object_get(source, "media_type"));
    for (size_t i = 0; i < 2; i++)
        if (json_is_string(json_object_get(p, heads[i]))) {
            put(out, json_object_get(p, heads[i]));
            buf_putc(out, '\n');
        }
    char at[160];
    snprintf(at, sizeof at, "%.120s.source", where);
    if (type && strcmp(type, "text") == 0) return put_text(data, at, out, e);
    if (type && strcmp(type, "content") == 0)
        return fields_put_text(json_object_get(source, "content"), at, false, out, e);
    if (type && strcmp(type, "base64") == 0 && media && str_starts(media, "text/"))
        return put_base64(data, at, out, e);
    return no_text(at, media ? media : type, e);
}

static int part_search_result(const json_t *p, const char *where, struct buf *out, struct err *e) {
    static const char *const heads[] = {"title", "source"};
    for (size_t i = 0; i < 2; i++)
        if (json_is_string(json_object_get(p, heads[i]))) {
            put(out, json_object_get(p, heads[i]));
            buf_putc(out, '\n');
        }
    return fields_put_text(json_object_get(p, "content"), where, false, out, e);
}

/* OpenAI's file: {"file_data": "data:text/plain;base64,..", "filename"}; the chat API puts it in an object "file". */
static int part_file(const json_t *p, const char *where, struct buf *out, struct err *e) {
    const json_t *in = json_object_get(p, "file");
    if (!in) in = p;
    const char *data = json_string_value(json_object_get(in, "file_data"));
    const char *comma = data ? strchr(data, ',') : NULL;
    char at[160], media[64];
    snprintf(at, sizeof at, "%.120s.file_data", where);
    if (!data) return no_text(where, "a file by its name", e);
    snprintf(media, sizeof media, "%.*s", comma ? (int)(comma - data) : 0, data);
    if (!comma || !str_starts(data, "data:text/") || !strstr(data, ";base64,"))
        return no_text(at, media, e);
    if (json_is_string(json_object_get(in, "filename"))) {
        put(out, json_object_get(in, "filename"));
        buf_putc(out, '\n');
    }
    json_t *encoded = json_string(comma + 1);
    int rc = put_base64(encoded, at, out, e);
    json_decref(encoded);
    return rc;
}

static const struct {
    const char *type;
    part_fn *read; /* NULL: this model cannot read it */
} parts[] = {
    {"text", part_text},       {"input_text", part_text},   {"output_text", part_text},
    {"refusal", part_refusal}, {"document", part_document}, {"search_result", part_search_result},
    {"input_file", part_file}, {"file", part_file},         {"image", NULL},
    {"image_url", NULL},       {"input_image", NULL},       {"input_audio", NULL},
    {"audio", NULL},           {"video_url", NULL},         {"tool_reference", NULL}};

int fields_part(const json_t *p, const char *where, bool notes, struct buf *out, struct err *e) {
    const char *type = json_string_value(json_object_get(p, "type"));
    if (json_is_string(p)) {
        put(out, p);
        return 0;
    }
    if (!type) return err_set(e, CHIMERE_EINVAL, "%s.type: expected text", where);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(type, parts[i].type) != 0) continue;
        size_t before = out->n;
        int rc = parts[i].read ? parts[i].read(p, where, out, e) : CHIMERE_EUNSUPPORTED;
        if (rc == CHIMERE_EUNSUPPORTED && notes) {
            buf_cut(out, before);
            buf_printf(out, "[%s left out: this model reads text only]", type);
            if (e) *e = (struct err){0};
            return 0;
        }
        if (parts[i].read) return rc;
    }
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s.type: expected text, got %.60s; this model reads text only", where, type);
}

int fields_put_text(const json_t *content, const char *where, bool notes, struct buf *out,
                    struct err *e) {
    size_t i;
    json_t *p;
    if (json_is_string(content)) {
        put(out, content);
        return 0;
    }
    if (!json_is_array(content))
        return err_set(e, CHIMERE_EINVAL, "%s: expected a text or a list of parts", where);
    json_array_foreach(content, i, p) {
        char at[128];
        snprintf(at, sizeof at, "%.100s[%zu]", where, i);
        int rc = fields_part(p, at, notes, out, e);
        if (rc) return rc;
    }
    return 0;
}

/* OpenAI's {"image_url": {"url"}} and {"image_url": "..."}; Anthropic's {"source": {"type", "media_type", "data" or "url"}}. */
static json_t *address_of(const json_t *p) {
    json_t *in = json_object_get(p, "image_url"), *source = json_object_get(p, "source");
    if (json_is_object(in)) in = json_object_get(in, "url");
    if (!in) in = json_object_get(source, "url");
    if (json_is_string(in)) return json_incref(in);
    const json_t *data = json_object_get(source, "data"),
                 *media = json_object_get(source, "media_type");
    struct buf url;
    if (!json_is_string(data) || !json_is_string(media)) return NULL;
    buf_init(&url, MAX_TEXT);
    buf_puts(&url, "data:");
    put(&url, media);
    buf_puts(&url, ";base64,");
    put(&url, data);
    json_t *out = url.failed ? NULL : json_stringn(url.p, url.n);
    buf_fini(&url);
    return out;
}

json_t *fields_image(const json_t *p, const char *where, int *rc, struct err *e) {
    static const char *const types[] = {"image_url", "input_image", "image"};
    const char *type = json_string_value(json_object_get(p, "type"));
    bool is_image = false;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        is_image |= strcmp(type, types[i]) == 0;
    *rc = 0;
    if (!is_image) return NULL;
    json_t *url = address_of(p);
    if (!url) {
        *rc = err_set(e, CHIMERE_EINVAL, "%s: expected an image as data:image/...;base64,DATA",
                      where);
        return NULL;
    }
    json_t *out = json_pack("{s:s,s:{s:o}}", "type", "image_url", "image_url", "url", url);
    if (!out) *rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return out;
}

static int add_part(const json_t *p, const char *where, bool notes, json_t *out, struct err *e) {
    struct buf text;
    int image_rc = 0;
    json_t *image = notes ? NULL : fields_image(p, where, &image_rc, e);
    if (image_rc) return image_rc;
    if (image) {
        if (json_array_append_new(out, image)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        return 0;
    }
    buf_init(&text, MAX_TEXT);
    int rc = fields_part(p, where, notes, &text, e);
    json_t *part = json_object();
    json_object_set_new(part, "type", json_string("text"));
    json_object_set_new(part, "text", json_stringn(text.n ? text.p : "", text.n));
    if (!rc && text.failed) rc = err_set(e, CHIMERE_ELIMIT, "%s: the text is too long", where);
    buf_fini(&text);
    if (json_array_append_new(out, part) && !rc) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

int fields_text(const json_t *content, const char *where, bool notes, json_t **out, struct err *e) {
    size_t i;
    json_t *p;
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content))
        return err_set(e, CHIMERE_EINVAL, "%s: expected a text or a list of parts", where);
    if (json_array_size(content) > FIELDS_MAX_PARTS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d parts", where, FIELDS_MAX_PARTS);
    json_t *list = json_array();
    json_array_foreach(content, i, p) {
        char at[128];
        snprintf(at, sizeof at, "%.100s[%zu]", where, i);
        int rc = add_part(p, at, notes, list, e);
        if (rc) {
            json_decref(list);
            return rc;
        }
    }
    json_t *only =
        json_array_size(list) == 1 ? json_object_get(json_array_get(list, 0), "text") : NULL;
    *out = json_incref(only ? only : list);
    json_decref(list);
    return 0;
}
