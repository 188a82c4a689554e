#include "odo/pipeline/yamlfile.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/str.h"

struct yamlfile {
    char *path; /* owned */
    char *text; /* owned, if it was read from a file */
    yaml_document_t doc;
    bool has_doc;
};

static yaml_node_t *at(const struct yamlfile *f, int32_t node) {
    return node > 0 && f->has_doc ? yaml_document_get_node((yaml_document_t *)&f->doc, node) : NULL;
}

int yamlfile_fail(const struct yamlfile *f, int32_t node, struct err *e, const char *fmt, ...) {
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    const yaml_node_t *n = at(f, node);
    return err_set(e, CHIMERE_EFORMAT, "%s:%zu: %s", f->path, n ? n->start_mark.line + 1 : 1, what);
}

static int parse(struct yamlfile *f, const char *text, size_t n, struct err *e) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    int rc = 0;
    if (!yaml_parser_load(&parser, &f->doc))
        rc = err_set(e, CHIMERE_EFORMAT, "%s:%zu: %s", f->path,
                     parser.problem_mark.line ? parser.problem_mark.line + 1
                                              : parser.context_mark.line + 1,
                     parser.problem ? parser.problem : "not YAML");
    else f->has_doc = true;
    yaml_parser_delete(&parser);
    return rc;
}

int yamlfile_open(struct yamlfile **out, const char *path, const char *text, size_t n,
                  struct err *e) {
    *out = NULL;
    struct yamlfile *f = mem_zalloc(sizeof *f);
    if (!f || !(f->path = mem_strdup(path))) {
        mem_free(f);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    int rc = 0;
    if (!text) {
        rc = file_read(path, YAMLFILE_MAX_BYTES, &f->text, &n, e);
        text = f->text;
    } else if (n > YAMLFILE_MAX_BYTES) {
        rc = err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d bytes, got %zu", path,
                     YAMLFILE_MAX_BYTES, n);
    }
    if (!rc && !utf8_is_valid(text, n))
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected UTF-8", path);
    if (!rc) rc = parse(f, text, n, e);
    if (rc) yamlfile_close(f);
    else *out = f;
    return rc;
}

void yamlfile_close(struct yamlfile *f) {
    if (!f) return;
    if (f->has_doc) yaml_document_delete(&f->doc);
    mem_free(f->text);
    mem_free(f->path);
    mem_free(f);
}

int32_t yamlfile_root(const struct yamlfile *f) {
    return yaml_document_get_root_node((yaml_document_t *)&f->doc) ? 1 : 0;
}

const char *yamlfile_text(const struct yamlfile *f, int32_t node) {
    const yaml_node_t *n = at(f, node);
    if (!n || n->type != YAML_SCALAR_NODE) return NULL;
    const char *s = (const char *)n->data.scalar.value;
    return strlen(s) == n->data.scalar.length ? s : NULL; /* refuses text with a NUL byte */
}

bool yamlfile_is_mapping(const struct yamlfile *f, int32_t node) {
    const yaml_node_t *n = at(f, node);
    return n && n->type == YAML_MAPPING_NODE;
}

int yamlfile_items(struct yamlfile *f, int32_t node, const char *what, int32_t *n, struct err *e) {
    const yaml_node_t *y = at(f, node);
    *n = 0;
    if (!y || y->type != YAML_SEQUENCE_NODE)
        return yamlfile_fail(f, node, e, "%s: expected a list", what);
    ptrdiff_t count = y->data.sequence.items.top - y->data.sequence.items.start;
    if (count > YAMLFILE_MAX_LIST)
        return yamlfile_fail(f, node, e, "%s: expected at most %d items, got %td", what,
                             YAMLFILE_MAX_LIST, count);
    *n = (int32_t)count;
    return 0;
}

int32_t yamlfile_item(const struct yamlfile *f, int32_t node, int32_t i) {
    return at(f, node)->data.sequence.items.start[i];
}

bool yamlfile_pair(const struct yamlfile *f, int32_t node, int32_t i, const char **key,
                   int32_t *value) {
    const yaml_node_t *y = at(f, node);
    if (!y || y->type != YAML_MAPPING_NODE) return false;
    yaml_node_pair_t *p = y->data.mapping.pairs.start + i;
    if (p >= y->data.mapping.pairs.top || !(*key = yamlfile_text(f, p->key))) return false;
    *value = p->value;
    return true;
}

static int choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (int i = 0;; ++i) {
        const char *end = strchr(choices, '|');
        size_t len = end ? (size_t)(end - choices) : strlen(choices);
        if (len == n && !memcmp(choices, text, n)) return i;
        if (!end) return -1;
        choices = end + 1;
    }
}

static int list(struct yamlfile *f, int32_t node, const struct yamlfile_field *field,
                struct yamlfile_list *out, struct arena *arena, struct err *e) {
    const char *one = yamlfile_text(f, node);
    int32_t n = 1;
    int rc = one ? 0 : yamlfile_items(f, node, field->name, &n, e);
    if (rc) return rc;
    out->n = 0;
    if (!(out->v = arena_alloc(arena, ((size_t)n + 1) * sizeof *out->v)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < n; ++i) {
        int32_t item = one ? node : yamlfile_item(f, node, i);
        const char *s = yamlfile_text(f, item);
        if (!s) return yamlfile_fail(f, item, e, "%s: expected a text in the list", field->name);
        if (!(out->v[out->n++] = arena_strndup(arena, s, strlen(s))))
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    return 0;
}

static int put(struct yamlfile *f, int32_t node, const struct yamlfile_field *d, char *base,
               struct arena *arena, struct err *e) {
    void *to = base + d->offset;
    if (d->type == YF_NODE) {
        *(int32_t *)to = node;
        return 0;
    }
    if (d->type == YF_LIST) return list(f, node, d, to, arena, e);
    const char *s = yamlfile_text(f, node);
    if (!s) return yamlfile_fail(f, node, e, "%s: expected one value", d->name);
    int64_t i;
    int k;
    switch (d->type) {
    case YF_STR:
        *(const char **)to = arena_strndup(arena, s, strlen(s));
        return *(const char **)to ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    case YF_BOOL:
        k = choice("false|true|no|yes|off|on", s);
        if (k < 0)
            return yamlfile_fail(f, node, e, "%s: expected true or false, got \"%s\"", d->name, s);
        *(bool *)to = k & 1;
        return 0;
    case YF_INT:
        if (!str_to_i64(s, (int64_t)d->min, (int64_t)d->max, &i))
            return yamlfile_fail(f, node, e, "%s: expected an integer in %g..%g, got \"%s\"",
                                 d->name, d->min, d->max, s);
        *(int32_t *)to = (int32_t)i;
        return 0;
    case YF_NUM:
        if (!str_to_f64(s, d->min, d->max, to))
            return yamlfile_fail(f, node, e, "%s: expected a number in %g..%g, got \"%s\"", d->name,
                                 d->min, d->max, s);
        return 0;
    default:
        k = choice(d->choices, s);
        if (k < 0)
            return yamlfile_fail(f, node, e, "%s: expected one of %s, got \"%s\"", d->name,
                                 d->choices, s);
        *(int32_t *)to = k;
        return 0;
    }
}

enum { MAX_JSON_DEPTH = 32 };

static json_t *scalar_json(const yaml_node_t *n) {
    const char *s = (const char *)n->data.scalar.value;
    size_t len = n->data.scalar.length;
    int64_t i;
    double x;
    if (n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && strlen(s) == len) {
        if (!strcmp(s, "true")) return json_true();
        if (!strcmp(s, "false")) return json_false();
        if (!strcmp(s, "null") || !*s) return json_null();
        if (str_to_i64(s, INT64_MIN, INT64_MAX, &i)) return json_integer((json_int_t)i);
        if (str_to_f64(s, -1e300, 1e300, &x)) return json_real(x);
    }
    return json_stringn(s, len);
}

/* *budget: nodes that may still be converted. Aliases could otherwise make a small file very large. */
static int to_json(const struct yamlfile *f, int32_t node, int depth, int *budget, json_t **out,
                   struct err *e) {
    const yaml_node_t *n = at(f, node);
    *out = NULL;
    if (!n || depth > MAX_JSON_DEPTH || --*budget < 0)
        return yamlfile_fail(f, node, e, "expected at most %d levels and %d values", MAX_JSON_DEPTH,
                             YAMLFILE_MAX_LIST);
    json_t *o = n->type == YAML_SCALAR_NODE    ? scalar_json(n)
                : n->type == YAML_MAPPING_NODE ? json_object()
                                               : json_array();
    int rc = o ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && n->type == YAML_MAPPING_NODE)
        for (yaml_node_pair_t *p = n->data.mapping.pairs.start;
             p < n->data.mapping.pairs.top && !rc; ++p) {
            const char *key = yamlfile_text(f, p->key);
            json_t *v = NULL;
            rc = key ? to_json(f, p->value, depth + 1, budget, &v, e)
                     : yamlfile_fail(f, p->key, e, "expected a key");
            if (!rc && json_object_set_new(o, key, v))
                rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        }
    if (!rc && n->type == YAML_SEQUENCE_NODE)
        for (yaml_node_item_t *p = n->data.sequence.items.start;
             p < n->data.sequence.items.top && !rc; ++p) {
            json_t *v = NULL;
            rc = to_json(f, *p, depth + 1, budget, &v, e);
            if (!rc && json_array_append_new(o, v))
                rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        }
    if (rc) json_decref(o);
    else *out = o;
    return rc;
}

int yamlfile_json(const struct yamlfile *f, int32_t node, json_t **out, struct err *e) {
    int budget = YAMLFILE_MAX_LIST;
    return to_json(f, node, 0, &budget, out, e);
}

int yamlfile_bind(struct yamlfile *f, int32_t node, const struct yamlfile_field *fields, void *base,
                  uint64_t *seen, struct arena *arena, struct err *e) {
    uint64_t rows = 0;
    const yaml_node_t *y = at(f, node);
    if (!y || y->type != YAML_MAPPING_NODE)
        return yamlfile_fail(f, node, e, "expected \"key: value\" lines");
    for (yaml_node_pair_t *p = y->data.mapping.pairs.start; p < y->data.mapping.pairs.top; ++p) {
        const char *key = yamlfile_text(f, p->key);
        if (!key) return yamlfile_fail(f, p->key, e, "expected a key");
        int i = 0;
        while (fields[i].name && strcmp(fields[i].name, key)) ++i;
        if (!fields[i].name) return yamlfile_fail(f, p->key, e, "unknown key \"%s\"", key);
        if (rows >> i & 1) return yamlfile_fail(f, p->key, e, "\"%s\" occurs twice", key);
        rows |= (uint64_t)1 << i;
        int rc = put(f, p->value, &fields[i], base, arena, e);
        if (rc) return rc;
    }
    if (seen) *seen = rows;
    return 0;
}
