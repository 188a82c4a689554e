/* hf_card.c: what a folder says about its model: the license, tags, languages and origins of the model card
 * (the YAML block at the start of README.md), and the parts of the folder's name. Names of keys are llama.cpp's.
 *
 * Nothing here changes what a model computes. A card that is not YAML is left out with a warning. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "convert/hf_impl.h"

enum { CARD_MAX = 8 << 20, MAX_ITEM = 64, MAX_TEXT = 256, N_PART = 3 };

enum field {
    LICENSE,
    LICENSE_NAME,
    LICENSE_LINK,
    LANGUAGE,
    TAGS,
    TASK,
    BASE_MODEL,
    DATASETS,
    N_FIELD
};
static const char *const fields[N_FIELD] = {"license", "license_name", "license_link", "language",
                                            "tags",    "pipeline_tag", "base_model",   "datasets"};

struct card {
    struct arena text;
    struct slice item[N_FIELD][MAX_ITEM]; /* views of text */
    size_t n[N_FIELD];
    bool is_short; /* of memory */
};

/* ---- reading ---- */

static void add_item(struct card *c, int field, const yaml_event_t *v) {
    const char *text = (const char *)v->data.scalar.value;
    size_t n = v->data.scalar.length;
    if (field < 0 || !n || n > MAX_TEXT || c->n[field] == MAX_ITEM) return;
    char *own = arena_strndup(&c->text, text, n);
    if (own) c->item[field][c->n[field]++] = (struct slice){own, n};
    else c->is_short = true;
}

static int find_field(const yaml_event_t *v) {
    for (int i = 0; i < N_FIELD; i++)
        if (strcmp((const char *)v->data.scalar.value, fields[i]) == 0) return i;
    return -1;
}

/* Takes the scalars of the outer mapping, and of lists in it. Returns false if the text is not YAML. */
static bool read_events(struct card *c, yaml_parser_t *parser) {
    int depth = 0, field = -1;
    bool wants_key = true, at_end = false;
    while (!at_end) {
        yaml_event_t v;
        if (!yaml_parser_parse(parser, &v)) return false;
        switch (v.type) {
        case YAML_MAPPING_START_EVENT:
        case YAML_SEQUENCE_START_EVENT:
            if (depth++ > 0 && v.type == YAML_MAPPING_START_EVENT) field = -1;
            break;
        case YAML_MAPPING_END_EVENT:
        case YAML_SEQUENCE_END_EVENT: wants_key = --depth == 1 || wants_key; break;
        case YAML_ALIAS_EVENT: wants_key |= depth == 1; break;
        case YAML_SCALAR_EVENT:
            if (depth == 1 && wants_key) field = find_field(&v);
            else if (depth == 1 || depth == 2) add_item(c, field, &v);
            if (depth == 1) wants_key = !wants_key;
            break;
        case YAML_STREAM_END_EVENT: at_end = true; break;
        default: break;
        }
        yaml_event_delete(&v);
    }
    return true;
}

/* The text between the first line, "---", and the next line of that kind. */
static struct slice front_matter(const char *text, size_t n) {
    if (n < 4 || memcmp(text, "---\n", 4) != 0) return (struct slice){NULL, 0};
    for (size_t i = 3; i + 4 <= n; i++)
        if (memcmp(text + i, "\n---", 4) == 0) return (struct slice){text + 4, i - 3};
    return (struct slice){NULL, 0};
}

static int read_card(struct card *c, const char *dir, struct err *e) {
    size_t size = strlen(dir) + sizeof "/README.md", n = 0;
    char *path = mem_alloc(size), *text = NULL;
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", dir);
    snprintf(path, size, "%s/README.md", dir);
    int rc = file_exists(path) ? file_read(path, CARD_MAX, &text, &n, e) : 0;
    struct slice yaml = front_matter(text, rc || !text ? 0 : n);
    yaml_parser_t parser;
    if (yaml.n) {
        if (!yaml_parser_initialize(&parser))
            rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
        if (!rc) {
            yaml_parser_set_input_string(&parser, (const unsigned char *)yaml.p, yaml.n);
            if (!read_events(c, &parser))
                log_warn("convert: %s: the model card is not YAML: left out", path);
            yaml_parser_delete(&parser);
            if (c->is_short) rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
        }
    }
    mem_free(text);
    mem_free(path);
    return rc;
}

/* ---- writing ---- */

static void put_text(struct gguf_writer *w, const char *key, struct slice s) {
    if (s.n) gguf_put_str(w, key, s.p, s.n);
}

/* Origins: "OWNER/NAME" on a hub. */
static void put_origins(const struct card *c, enum field field, const char *kind,
                        struct gguf_writer *w) {
    char key[64], url[MAX_TEXT + 64];
    if (!c->n[field]) return;
    snprintf(key, sizeof key, "general.%s.count", kind);
    gguf_put_u32(w, key, (uint32_t)c->n[field]);
    for (size_t i = 0; i < c->n[field]; i++) {
        struct slice s = c->item[field][i];
        const char *slash = memchr(s.p, '/', s.n);
        size_t n_owner = slash ? (size_t)(slash - s.p) : 0;
        struct slice name = slash ? (struct slice){slash + 1, s.n - n_owner - 1} : s;
        snprintf(key, sizeof key, "general.%s.%zu.name", kind, i);
        put_text(w, key, name);
        snprintf(key, sizeof key, "general.%s.%zu.organization", kind, i);
        put_text(w, key, (struct slice){s.p, n_owner});
        snprintf(key, sizeof key, "general.%s.%zu.repo_url", kind, i);
        int n = snprintf(url, sizeof url, "https://huggingface.co/%s%.*s",
                         field == DATASETS ? "datasets/" : "", (int)s.n, s.p);
        if (slash) gguf_put_str(w, key, url, (size_t)n);
    }
}

static void put_lists(struct card *c, struct gguf_writer *w) {
    for (size_t i = 0; i < c->n[TASK] && c->n[TAGS] < MAX_ITEM; i++)
        c->item[TAGS][c->n[TAGS]++] = c->item[TASK][i];
    if (c->n[TAGS]) gguf_put_strings(w, "general.tags", c->item[TAGS], c->n[TAGS]);
    if (c->n[LANGUAGE]) gguf_put_strings(w, "general.languages", c->item[LANGUAGE], c->n[LANGUAGE]);
}

/* Whether s is a number, such as 0.6 or 8x7, and one of the units; "": without a unit. */
static bool is_number_and(const char *s, size_t n, const char *units) {
    size_t i = 0;
    bool has_digit = false;
    for (; i < n && (strchr("0123456789.x", s[i])); i++) has_digit |= s[i] >= '0' && s[i] <= '9';
    return has_digit && (*units ? i + 1 == n && strchr(units, s[i]) != NULL : i == n);
}

/* Parts of "Qwen3-0.6B-Instruct-v2": those before the size, those after it, the version. */
static void put_name_parts(struct gguf_writer *w, const char *name, size_t n) {
    char part[N_PART][MAX_TEXT] = {"", "", ""};
    bool after = false;
    if (n >= MAX_TEXT) return;
    for (size_t at = 0; at < n;) {
        size_t len = 0;
        while (at + len < n && name[at + len] != '-') len++;
        const char *s = name + at;
        at += len + 1;
        if (is_number_and(s, len, "KMBTkmbt")) {
            after = true;
            continue;
        }
        int to = len > 1 && s[0] == 'v' && is_number_and(s + 1, len - 1, "") ? 2 : after;
        size_t have = strlen(part[to]);
        snprintf(part[to] + have, MAX_TEXT - have, "%s%.*s", have ? "-" : "", (int)len, s);
    }
    static const char *const keys[N_PART] = {"general.basename", "general.finetune",
                                             "general.version"};
    for (int i = 0; i < N_PART && after; i++)
        put_text(w, keys[i], (struct slice){part[i], strlen(part[i])});
}

static struct slice folder_name(const char *dir) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && dir[start - 1] != '/') start--;
    return (struct slice){dir + start, n - start};
}

int hf_put_card(const struct hf *h, struct gguf_writer *w, struct err *e) {
    static const char *const keys[] = {"general.license", "general.license.name",
                                       "general.license.link"};
    struct slice name = folder_name(h->options->dir);
    struct card *c = mem_zalloc(sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "model card: out of memory");
    arena_init(&c->text, 1 << 20);
    int rc = read_card(c, h->options->dir, e);
    gguf_put_str(w, "general.name", name.p, name.n);
    put_name_parts(w, name.p, name.n);
    for (int i = LICENSE; i <= LICENSE_LINK; i++)
        if (c->n[i]) put_text(w, keys[i], c->item[i][0]);
    put_lists(c, w);
    put_origins(c, BASE_MODEL, "base_model", w);
    put_origins(c, DATASETS, "dataset", w);
    arena_fini(&c->text);
    mem_free(c);
    return rc;
}

/* "113K", "8.0B": two digits at least. */
static void rounded(char *out, size_t size, double n) {
    static const struct {
        double from, unit;
        char letter;
    } rows[] = {{1e12, 1e12, 'T'}, {1e9, 1e9, 'B'}, {1e6, 1e6, 'M'}, {0, 1e3, 'K'}};
    size_t i = 0;
    while (i < 3 && n <= rows[i].from) i++;
    double x = n / rows[i].unit;
    snprintf(out, size, "%.*f%c", x < 9.5 ? 1 : 0, x, rows[i].letter);
}

void hf_put_size_label(struct gguf_writer *w, uint64_t n_shared, uint64_t n_in_experts,
                       uint32_t n_expert) {
    char text[40], label[64];
    if (!n_expert) n_shared += n_in_experts, n_in_experts = 0;
    rounded(text, sizeof text, (double)n_shared + (n_expert ? (double)n_in_experts / n_expert : 0));
    int n = n_expert ? snprintf(label, sizeof label, "%" PRIu32 "x%s", n_expert, text)
                     : snprintf(label, sizeof label, "%s", text);
    gguf_put_str(w, "general.size_label", label, (size_t)n);
}
