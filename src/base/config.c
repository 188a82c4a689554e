#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"

enum { MAX_OPT = 320, MAX_LIST = 4096, MAX_CONFIG_BYTES = 1 << 20 };

struct value {
    const struct cfg_opt *opt;
    enum cfg_origin origin;
    char *text;   /* owned; the last value as text; NULL: unset */
    char **items; /* owned; CFG_LIST */
    size_t n_item;
    bool b;
    int64_t i;
    double f;
    uint64_t bytes;
};

struct cfg {
    struct value v[MAX_OPT];
    int n;
    const char **pos; /* owned array of views into argv */
    int n_pos;
};

static struct value *find_row(const struct cfg *c, const char *name) {
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->v[i].opt->name, name) == 0) return (struct value *)&c->v[i];
    return NULL;
}

static bool is_own(const struct cfg_opt *o) { return o->type < CFG_ALIAS; }

static struct value *find(const struct cfg *c, const char *name) {
    struct value *v = find_row(c, name);
    return v && is_own(v->opt) ? v : NULL;
}

/* Finds the option of a flag, including its aliases and with '_' for '-'. NULL: this command does not have it; *hint
 * may then explain. */
static struct value *find_flag(const struct cfg *c, const char *flag, const char **hint) {
    char name[64];
    size_t n = 0;
    for (; flag[n] && n + 1 < sizeof name; n++) name[n] = flag[n] == '_' ? '-' : flag[n];
    name[n] = 0;
    struct value *v = find_row(c, name);
    if (v && v->opt->type == CFG_ALIAS) return find(c, v->opt->arg);
    if (v && v->opt->type == CFG_ELSEWHERE) {
        *hint = v->opt->help;
        return NULL;
    }
    return v;
}

static const struct value *need(const struct cfg *c, const char *name) {
    const struct value *v = find(c, name);
    if (!v) {
        fprintf(stderr, "chimere: option %s is in no table\n", name);
        abort(); /* a programming error: the option is not in the tables */
    }
    return v;
}

static bool parse_bool(const char *s, bool *out) {
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[] = {"0", "false", "no", "off"};
    for (int i = 0; i < 4; i++) {
        if (str_eq_nocase(s, yes[i])) return *out = true, true;
        if (str_eq_nocase(s, no[i])) return *out = false, true;
    }
    return false;
}

static bool is_choice(const char *choices, const char *s) {
    size_t n = strlen(s);
    for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, s, n) == 0) return true;
    }
    return false;
}

static int list_add(struct value *v, const char *text, struct err *e) {
    if (v->n_item >= MAX_LIST)
        return err_set(e, CHIMERE_ELIMIT, "--%s: more than %d values", v->opt->name, MAX_LIST);
    char **items = mem_realloc(v->items, (v->n_item + 1) * sizeof *items);
    if (!items) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    v->items = items;
    items[v->n_item] = mem_strdup(text);
    if (!items[v->n_item]) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    v->n_item++;
    return 0;
}

/* Stores one value given as text; `where` names its source in errors. */
static int store(struct value *v, const char *text, enum cfg_origin origin, const char *where,
                 struct err *e) {
    const struct cfg_opt *o = v->opt;
    bool ok = true;
    char want[128] = "";
    switch (o->type) {
    case CFG_BOOL:
        ok = parse_bool(text, &v->b);
        snprintf(want, sizeof want, "true or false");
        break;
    case CFG_INT:
        ok = str_to_i64(text, (int64_t)o->min, (int64_t)o->max, &v->i);
        snprintf(want, sizeof want, "a whole number from %.0f to %.0f", o->min, o->max);
        break;
    case CFG_FLOAT:
        ok = str_to_f64(text, o->min, o->max, &v->f);
        snprintf(want, sizeof want, "a number from %g to %g", o->min, o->max);
        break;
    case CFG_BYTES:
        ok = str_to_bytes(text, &v->bytes);
        snprintf(want, sizeof want, "a size such as 512M or 15.3GiB");
        break;
    case CFG_ENUM:
        ok = is_choice(o->choices, text);
        snprintf(want, sizeof want, "one of %s", o->choices);
        break;
    case CFG_STR:
    case CFG_LIST: break;
    case CFG_ALIAS:
    case CFG_ELSEWHERE: return err_set(e, CHIMERE_EINTERNAL, "%s: has no value", where);
    }
    if (!ok) return err_set(e, CHIMERE_EINVAL, "%s: expected %s, got '%.80s'", where, want, text);
    if (o->type == CFG_LIST) {
        /* a source of higher priority replaces the list of the lower one */
        if (v->origin != origin) {
            for (size_t i = 0; i < v->n_item; i++) mem_free(v->items[i]);
            v->n_item = 0;
        }
        int rc = list_add(v, text, e);
        if (rc) return rc;
    }
    char *copy = mem_strdup(text);
    if (!copy) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(v->text);
    v->text = copy;
    v->origin = origin;
    return 0;
}

static int add_tables(struct cfg *c, const struct cfg_opt *const *tables, struct err *e) {
    for (; *tables; tables++) {
        for (const struct cfg_opt *o = *tables; o->name; o++) {
            if (find_row(c, o->name)) continue;
            if (c->n == MAX_OPT)
                return err_set(e, CHIMERE_EINTERNAL, "more than %d options", MAX_OPT);
            struct value *v = &c->v[c->n++];
            v->opt = o;
            if (!o->def) continue;
            int rc = store(v, o->def, CFG_DEFAULT, o->name, e);
            if (rc) return rc;
        }
    }
    return 0;
}

static int load_env(struct cfg *c, struct err *e) {
    for (int i = 0; i < c->n; i++) {
        if (!is_own(c->v[i].opt)) continue;
        char name[80] = "CHIMERE_";
        size_t n = strlen(name);
        for (const char *p = c->v[i].opt->name; *p && n + 1 < sizeof name; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = 0;
        const char *text = getenv(name);
        if (!text || !*text) continue;
        int rc = store(&c->v[i], text, CFG_ENV, name, e);
        if (rc) return rc;
    }
    return 0;
}

/* Reads the top level of the file: a mapping from option names to scalars or sequences of scalars. */
static int load_yaml(struct cfg *c, const char *path, yaml_document_t *doc, bool strict,
                     struct err *e) {
    yaml_node_t *root = yaml_document_get_root_node(doc);
    if (!root) return 0;
    if (root->type != YAML_MAPPING_NODE)
        return err_set(e, CHIMERE_EFORMAT, "%s: expected a mapping of options", path);
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        yaml_node_t *k = yaml_document_get_node(doc, p->key),
                    *v = yaml_document_get_node(doc, p->value);
        unsigned long line = (unsigned long)k->start_mark.line + 1;
        if (k->type != YAML_SCALAR_NODE)
            return err_set(e, CHIMERE_EFORMAT, "%s:%lu: expected an option name", path, line);
        const char *name = (const char *)k->data.scalar.value;
        struct value *slot = find(c, name);
        if (!slot) {
            /* the user's configuration file serves all commands, so it may have options of other commands */
            if (!strict) continue;
            return err_set(e, CHIMERE_EINVAL, "%s:%lu: unknown option '%.80s'", path, line, name);
        }
        char where[600];
        snprintf(where, sizeof where, "%.400s:%lu: %s", path, line, name);
        if (v->type == YAML_SCALAR_NODE) {
            int rc = store(slot, (const char *)v->data.scalar.value, CFG_FILE, where, e);
            if (rc) return rc;
        } else if (v->type == YAML_SEQUENCE_NODE && slot->opt->type == CFG_LIST) {
            for (yaml_node_item_t *it = v->data.sequence.items.start;
                 it < v->data.sequence.items.top; it++) {
                yaml_node_t *item = yaml_document_get_node(doc, *it);
                if (item->type != YAML_SCALAR_NODE)
                    return err_set(e, CHIMERE_EFORMAT, "%s: expected plain values", where);
                int rc = store(slot, (const char *)item->data.scalar.value, CFG_FILE, where, e);
                if (rc) return rc;
            }
        } else {
            return err_set(e, CHIMERE_EFORMAT, "%s: expected a plain value", where);
        }
    }
    return 0;
}

static int load_file(struct cfg *c, const char *path, bool strict, struct err *e) {
    char *text;
    size_t n;
    int rc = file_read(path, MAX_CONFIG_BYTES, &text, &n, e);
    if (rc) return rc;
    yaml_parser_t parser;
    yaml_document_t doc;
    if (!yaml_parser_initialize(&parser)) {
        mem_free(text);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    if (!yaml_parser_load(&parser, &doc)) {
        rc = err_set(e, CHIMERE_EFORMAT, "%s:%zu: %s", path, parser.problem_mark.line + 1,
                     parser.problem ? parser.problem : "not YAML");
    } else {
        rc = load_yaml(c, path, &doc, strict, e);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    mem_free(text);
    return rc;
}

static void print_help(const struct cfg *c, const char *usage) {
    printf("%s\n\noptions:\n", usage);
    for (int i = 0; i < c->n; i++) {
        const struct cfg_opt *o = c->v[i].opt;
        if (!is_own(o)) continue;
        char left[64];
        int n = o->letter ? snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name)
                          : snprintf(left, sizeof left, "    --%s", o->name);
        if (o->arg) snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
        printf("  %-28s %s", left, o->help);
        if (o->type == CFG_ENUM) printf(" (%s)", o->choices);
        if (o->def && o->type != CFG_BOOL) printf(" [%s]", o->def);
        putchar('\n');
    }
}

static struct value *find_letter(struct cfg *c, char letter) {
    for (int i = 0; i < c->n; i++)
        if (c->v[i].opt->letter == letter) return &c->v[i];
    return NULL;
}

/* Returns the option name with the smallest edit distance, at most 2; NULL: none. */
static const char *nearest(const struct cfg *c, const char *name) {
    const char *best = NULL;
    size_t least = 3;
    for (int i = 0; i < c->n; i++) {
        size_t d = is_own(c->v[i].opt) ? str_distance(name, c->v[i].opt->name) : least;
        if (d < least && d < strlen(name)) least = d, best = c->v[i].opt->name;
    }
    return best;
}

static int refuse_flag(const struct cfg *c, const char *a, const char *name, const char *hint,
                       struct err *e) {
    err_set(e, CHIMERE_EINVAL, "unknown option '%.80s'", a);
    const char *near = hint || a[1] != '-' ? NULL : nearest(c, name);
    if (hint) err_hint(e, "here: %s", hint);
    else if (near) err_hint(e, "did you mean --%s?", near);
    else err_hint(e, "--help lists the options of this command");
    return CHIMERE_EINVAL;
}

/* Handles argv[i], which begins with '-'. Returns the number of arguments it used, or an error. */
static int take_flag(struct cfg *c, int i, int argc, char **argv, struct err *e) {
    const char *a = argv[i], *value = NULL, *hint = NULL;
    struct value *v;
    bool negated = false;
    char name[64];
    const char *begin = a + (a[1] == '-' ? 2 : 1), *eq = strchr(begin, '=');
    size_t n = eq ? (size_t)(eq - begin) : strlen(begin);
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, begin);
    if (a[1] == '-') {
        value = eq ? eq + 1 : NULL;
        v = find_flag(c, name, &hint);
        if (!v && !hint && str_starts(name, "no-")) {
            v = find_flag(c, name + 3, &hint);
            negated = v && v->opt->type == CFG_BOOL;
            if (!negated) v = NULL;
        }
    } else if (n > 1 && find_row(c, name) && !is_own(find_row(c, name)->opt)) {
        v = find_flag(c, name, &hint); /* -np, -ngl: all letters belong to one flag */
        value = eq ? eq + 1 : NULL;
    } else {
        v = find_letter(c, a[1]);
        if (v && a[2]) value = a + 2;
    }
    if (!v) return refuse_flag(c, a, name, hint, e);
    if (v->opt->type == CFG_BOOL) {
        int rc = store(v, value ? value : negated ? "false" : "true", CFG_FLAG, a, e);
        return rc ? rc : 1;
    }
    int taken = 1;
    if (!value) {
        if (i + 1 >= argc) return err_set(e, CHIMERE_EINVAL, "%s: expected a value", a);
        value = argv[i + 1];
        taken = 2;
    }
    int rc = store(v, value, CFG_FLAG, a, e);
    return rc ? rc : taken;
}

static int load_flags(struct cfg *c, const char *usage, int argc, char **argv, struct err *e) {
    bool options = true;
    for (int i = 1; i < argc;) {
        const char *a = argv[i];
        if (options && strcmp(a, "--") == 0) {
            options = false;
            i++;
        } else if (options && (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)) {
            print_help(c, usage);
            return CHIMERE_ECANCELLED;
        } else if (options && a[0] == '-' && a[1]) {
            int n = take_flag(c, i, argc, argv, e);
            if (n < 0) return n;
            i += n;
        } else {
            c->pos[c->n_pos++] = a;
            i++;
        }
    }
    return 0;
}

static int load_files(struct cfg *c, int argc, char **argv, struct err *e) {
    const char *path = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) path = argv[i + 1];
        else if (str_starts(argv[i], "--config=")) path = argv[i] + 9;
    }
    if (!path) path = getenv("CHIMERE_CONFIG");
    if (path && *path) return load_file(c, path, true, e);
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char own[4096];
    int n = xdg && *xdg
                ? snprintf(own, sizeof own, "%s/chimere/config.yaml", xdg)
                : snprintf(own, sizeof own, "%s/.config/chimere/config.yaml", home ? home : "");
    if (n <= 0 || (size_t)n >= sizeof own || !file_exists(own)) return 0;
    return load_file(c, own, false, e);
}

static const struct cfg_opt own_options[] = {
    {"config", 0, CFG_STR, "FILE", NULL, 0, 0, NULL,
     "options from a YAML file (default: chimere/config.yaml in ~/.config, if it exists)"},
    {0}};

int cfg_parse(struct cfg **out, const struct cfg_opt *const *tables, const char *usage, int argc,
              char **argv, struct err *e) {
    *out = NULL;
    struct cfg *c = mem_zalloc(sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    c->pos = mem_alloc_array((size_t)argc + 1, sizeof *c->pos);
    static const struct cfg_opt *const own[] = {own_options, NULL};
    int rc = c->pos ? add_tables(c, tables, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = add_tables(c, own, e);
    if (!rc) rc = load_files(c, argc, argv, e);
    if (!rc) rc = load_env(c, e);
    if (!rc) rc = load_flags(c, usage, argc, argv, e);
    if (rc) {
        cfg_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void cfg_free(struct cfg *c) {
    if (!c) return;
    for (int i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->v[i].n_item; k++) mem_free(c->v[i].items[k]);
        mem_free(c->v[i].items);
        mem_free(c->v[i].text);
    }
    mem_free(c->pos);
    mem_free(c);
}

int cfg_set(struct cfg *c, const char *name, const char *text, struct err *e) {
    struct value *v = find(c, name);
    if (!v) return err_set(e, CHIMERE_EINVAL, "unknown option '%.80s'", name);
    return store(v, text, CFG_FLAG, name, e);
}

const char *cfg_env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

bool cfg_wants_color(FILE *f) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return os_is_terminal(f) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

bool cfg_has(const struct cfg *c, const char *name) { return find(c, name) != NULL; }
bool cfg_is_set(const struct cfg *c, const char *name) { return need(c, name)->text != NULL; }
bool cfg_bool(const struct cfg *c, const char *name) { return need(c, name)->b; }
int64_t cfg_int(const struct cfg *c, const char *name) { return need(c, name)->i; }
double cfg_float(const struct cfg *c, const char *name) { return need(c, name)->f; }
uint64_t cfg_bytes(const struct cfg *c, const char *name) { return need(c, name)->bytes; }
const char *cfg_str(const struct cfg *c, const char *name) { return need(c, name)->text; }

size_t cfg_list(const struct cfg *c, const char *name, const char *const **items) {
    const struct value *v = need(c, name);
    *items = (const char *const *)v->items;
    return v->n_item;
}

enum cfg_origin cfg_origin(const struct cfg *c, const char *name) { return need(c, name)->origin; }

const char *cfg_text(const struct cfg *c, const char *name) {
    const struct value *v = need(c, name);
    if (!v->text) return "";
    return strstr(name, "key") || str_ends(name, "-token") ? "(hidden)" : v->text;
}

int cfg_n_pos(const struct cfg *c) { return c->n_pos; }
const char *cfg_pos(const struct cfg *c, int i) {
    return i >= 0 && i < c->n_pos ? c->pos[i] : NULL;
}
