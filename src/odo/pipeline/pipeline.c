/* pipeline.c: loads the files of the folder and makes snapshots of them. */
#include "odo/pipeline/pipeline.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "odo/pipeline/pipeline_steps.h"
#include "strategy/strategy.h"

enum file_kind { FILE_PIPELINE, FILE_RULES, FILE_SKILL, FILE_PERSONA };

struct file { /* one version of one file; shared between sets */
    _Atomic int refs;
    char name[SKILL_MAX_NAME + 16]; /* relative to the folder */
    enum file_kind kind;
    struct arena arena;
    struct pipeline p;
    struct skill skill;
    struct intent_rules *rules; /* owned; only for intent.yaml */
    const char *persona;        /* text, in the arena */
};

enum { MAX_FILES = PIPELINE_MAX + PIPELINE_MAX_SKILLS + PIPELINE_MAX_PERSONAS };

struct pipeline_set {
    _Atomic int refs;
    struct file *files[MAX_FILES];                   /* each holds a reference */
    int n, n_of[FILE_PERSONA + 1];                   /* all, and by kind */
    const struct skill *skills[PIPELINE_MAX_SKILLS]; /* views into files [n_of[FILE_SKILL]] */
    const struct intent_rules *rules;                /* view into files */
    uint64_t version;
    const struct pipeline_names *names; /* borrowed while the set is made */
    char problem[640];
};

struct pipeline_dir {
    char *path; /* owned */
    struct pipeline_names names;
    pthread_mutex_t lock; /* protects now; a reload also holds `reloading` */
    pthread_mutex_t reloading;
    struct pipeline_set *now; /* holds a reference */
    pthread_t thread;
    bool watching;
    int inotify, stop; /* file descriptors; -1: none */
};

static void file_drop(struct file *f) {
    if (!f || --f->refs) return;
    intent_free(f->rules);
    arena_fini(&f->arena);
    mem_free(f);
}

/* ---- one file ---- */

struct nodes { /* nodes of the members that are mappings */
    int32_t sampling, thinking, engram, enrich, plan, steps, strategy, quality;
};

static int bind_parts(struct file *f, struct yamlfile *y, const struct nodes *n, struct err *e) {
    struct pipeline *p = &f->p;
    static const struct yamlfile_field thinking[] = {
        {"enabled", YF_BOOL, 0, 0, 0, NULL},
        {"budget", YF_INT, sizeof(int32_t), -1, 1 << 20, NULL},
        {0}};
    static const struct yamlfile_field engram[] = {
        {"table", YF_STR, offsetof(struct pipeline, engram), 0, 0, NULL},
        {"alpha", YF_NUM, offsetof(struct pipeline, engram_alpha), 0, 1, NULL},
        {0}};
    static const struct yamlfile_field enrich[] = {
        {"documents", YF_BOOL, offsetof(struct pipeline, documents), 0, 0, NULL},
        {"collection", YF_STR, offsetof(struct pipeline, collection), 0, 0, NULL},
        {"web", YF_ENUM, offsetof(struct pipeline, web), 0, 0, "never|probe|always"},
        {"few_shot", YF_BOOL, offsetof(struct pipeline, few_shot), 0, 0, NULL},
        {"dynamic_engram", YF_BOOL, offsetof(struct pipeline, dynamic_engram), 0, 0, NULL},
        {"tokens", YF_INT, offsetof(struct pipeline, enrich_tokens), 50, 1 << 20, NULL},
        {"deadline_ms", YF_INT, offsetof(struct pipeline, enrich_ms), 10, 600000, NULL},
        {0}};
    static const struct yamlfile_field plan[] = {
        {"enabled", YF_BOOL, offsetof(struct pipeline, plan), 0, 0, NULL},
        {"max_tokens", YF_INT, offsetof(struct pipeline, plan_tokens), 1, 8192, NULL},
        {"deadline_ms", YF_INT, offsetof(struct pipeline, plan_ms), 10, 600000, NULL},
        {0}};
    static const struct yamlfile_field strategy[] = {
        {"use", YF_STR, offsetof(struct pipeline, strategy), 0, 0, NULL},
        {"when", YF_ENUM, offsetof(struct pipeline, strategy_when), 0, 0, "never|ultra|always"},
        {"deadline_ms", YF_INT, offsetof(struct pipeline, strategy_ms), 10, 3600000, NULL},
        {0}};
    static const struct yamlfile_field quality[] = {
        {"score", YF_BOOL, offsetof(struct pipeline, quality_score), 0, 0, NULL},
        {"keep", YF_BOOL, offsetof(struct pipeline, quality_keep), 0, 0, NULL},
        {"reflect", YF_BOOL, offsetof(struct pipeline, quality_reflect), 0, 0, NULL},
        {0}};
    struct {
        bool enabled;
        int32_t budget;
    } think = {.budget = INT32_MIN};
    uint64_t seen = 0;
    int rc = pipeline_bind_sampling(y, n->sampling, &p->sampling, &f->arena, e);
    if (!rc && n->thinking)
        rc = yamlfile_bind(y, n->thinking, thinking, &think, &seen, &f->arena, e);
    p->think = seen & 1 ? think.enabled : -1;
    p->think_budget = think.budget;
    if (!rc && n->engram) rc = yamlfile_bind(y, n->engram, engram, p, NULL, &f->arena, e);
    if (!rc && n->enrich) rc = yamlfile_bind(y, n->enrich, enrich, p, NULL, &f->arena, e);
    if (!rc && n->plan) rc = yamlfile_bind(y, n->plan, plan, p, NULL, &f->arena, e);
    if (!rc && n->strategy) rc = yamlfile_bind(y, n->strategy, strategy, p, NULL, &f->arena, e);
    if (!rc && n->quality) rc = yamlfile_bind(y, n->quality, quality, p, NULL, &f->arena, e);
    struct strategy s;
    struct err why = {0};
    if (!rc && p->strategy && strategy_parse(&s, p->strategy, &why))
        rc = yamlfile_fail(y, n->strategy, e, "%s", why.text);
    return rc;
}

enum { SKILLS_ROW = 5, MCP_ROW = 6 }; /* rows of the table below */

static int bind_file(struct file *f, struct yamlfile *y, struct err *e) {
    struct whole {
        struct pipeline p;
        struct nodes n;
    } *w = mem_zalloc(sizeof *w);
    if (!w) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    static const struct yamlfile_field fields[] = {
        {"name", YF_STR, offsetof(struct whole, p.name), 0, 0, NULL},
        {"about", YF_STR, offsetof(struct whole, p.about), 0, 0, NULL},
        {"prompt", YF_STR, offsetof(struct whole, p.prompt), 0, 0, NULL},
        {"persona", YF_STR, offsetof(struct whole, p.persona), 0, 0, NULL},
        {"tools", YF_LIST, offsetof(struct whole, p.tools), 0, 0, NULL},
        {"skills", YF_LIST, offsetof(struct whole, p.skills), 0, 0, NULL},
        {"mcp", YF_LIST, offsetof(struct whole, p.mcp), 0, 0, NULL},
        {"rounds", YF_INT, offsetof(struct whole, p.rounds), 1, 64, NULL},
        {"memory", YF_ENUM, offsetof(struct whole, p.memory), 0, 0, "never|facts|all"},
        {"memory_tokens", YF_INT, offsetof(struct whole, p.memory_tokens), 0, 1 << 20, NULL},
        {"run_steps", YF_ENUM, offsetof(struct whole, p.run_steps), 0, 0, "never|ultra|always"},
        {"sampling", YF_NODE, offsetof(struct whole, n.sampling), 0, 0, NULL},
        {"thinking", YF_NODE, offsetof(struct whole, n.thinking), 0, 0, NULL},
        {"engram", YF_NODE, offsetof(struct whole, n.engram), 0, 0, NULL},
        {"enrich", YF_NODE, offsetof(struct whole, n.enrich), 0, 0, NULL},
        {"plan", YF_NODE, offsetof(struct whole, n.plan), 0, 0, NULL},
        {"steps", YF_NODE, offsetof(struct whole, n.steps), 0, 0, NULL},
        {"strategy", YF_NODE, offsetof(struct whole, n.strategy), 0, 0, NULL},
        {"quality", YF_NODE, offsetof(struct whole, n.quality), 0, 0, NULL},
        {0}};
    w->p.rounds = 6;
    w->p.enrich_tokens = 1200;
    w->p.enrich_ms = 8000;
    w->p.plan_tokens = 256;
    w->p.plan_ms = 20000;
    w->p.run_steps = PIPELINE_ULTRA;
    w->p.engram_alpha = 1;
    w->p.strategy_when = PIPELINE_ULTRA;
    w->p.strategy_ms = 60000;
    w->p.memory = PIPELINE_MEMORY_FACTS;
    w->p.memory_tokens = 300;
    int32_t root = yamlfile_root(y);
    uint64_t seen = 0;
    int rc = yamlfile_bind(y, root, fields, w, &seen, &f->arena, e);
    f->p = w->p;
    f->p.any_skill = !(seen >> SKILLS_ROW & 1);
    f->p.any_mcp = !(seen >> MCP_ROW & 1);
    struct nodes nodes = w->n;
    mem_free(w);
    if (rc) return rc;
    size_t stem = strlen(f->name) - 5; /* .yaml */
    if (!f->p.name || strlen(f->p.name) != stem || strncmp(f->p.name, f->name, stem))
        return yamlfile_fail(y, root, e, "name: expected the file's own, %.*s", (int)stem, f->name);
    rc = bind_parts(f, y, &nodes, e);
    if (!rc && nodes.steps) rc = pipeline_steps_bind(&f->p, y, nodes.steps, &f->arena, e);
    return rc;
}

/* Reads personas/NAME/SOUL.md of the folder. */
static int read_persona(struct file *f, const char *dir, const char *name, const char **out,
                        struct err *e) {
    char *text = NULL;
    size_t n;
    struct buf path;
    buf_init(&path, PATH_MAX);
    int rc = buf_printf(&path, "%s/personas/%s/SOUL.md", dir, name);
    if (rc) rc = err_set(e, rc, "%s: persona: its path is too long", dir);
    if (!rc) rc = file_read(path.p, (size_t)64 << 10, &text, &n, e);
    while (!rc && n && (text[n - 1] == '\n' || text[n - 1] == ' ')) --n;
    if (!rc && (!utf8_is_valid(text, n) || memchr(text, 0, n)))
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected UTF-8", path.p);
    else if (!rc && !(*out = arena_strndup(&f->arena, text, n)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_fini(&path);
    mem_free(text);
    return rc;
}

/* Replaces the persona's name by its text. */
static int load_persona(struct file *f, const char *dir, struct err *e) {
    const char *name = f->p.persona;
    if (!name) return 0;
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(name))
        return err_set(e, CHIMERE_EFORMAT, "%s/%s: persona: expected a name of a-z 0-9 _ -", dir,
                       f->name);
    return read_persona(f, dir, name, &f->p.persona, e);
}

/* ---- names ---- */

/* Every tool that a build can have. Which of them this process has depends on its options. */
static const char *const built_in[] = {"calculator", "documents", "web_search", "read_file",
                                       "write_file", "run_code",  "remember",   "recall"};

static bool is_tool(const struct pipeline_names *names, const char *name) {
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; ++i)
        if (!strcmp(built_in[i], name)) return true;
    return names && names->has_tool && names->has_tool(names->ud, name);
}

static int check_tools(const struct file *f, const char *dir, const struct yamlfile_list *l,
                       const struct pipeline_names *names, struct err *e) {
    for (size_t i = 0; i < l->n; ++i)
        if (!is_tool(names, l->v[i])) {
            err_set(e, CHIMERE_EFORMAT, "%s/%s: tools: there is no tool \"%.40s\"", dir, f->name,
                    l->v[i]);
            err_hint(e, "tools of MCP servers are listed by the key mcp");
            return CHIMERE_EFORMAT;
        }
    return 0;
}

/* A skill that exists but is broken counts as known: it must not prevent a start. */
static int check_skills(const struct file *f, const char *dir, struct err *e) {
    int rc = 0;
    for (size_t i = 0; i < f->p.skills.n && !rc; ++i) {
        const char *name = f->p.skills.v[i];
        struct buf path;
        buf_init(&path, PATH_MAX);
        bool plain =
            *name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
        if (!plain || buf_printf(&path, "%s/skills/%s/SKILL.md", dir, name) || !file_exists(path.p))
            rc = err_set(e, CHIMERE_EFORMAT, "%s/%s: skills: there is no skill \"%.40s\"", dir,
                         f->name, name);
        buf_fini(&path);
    }
    return rc;
}

static int check_names(const struct file *f, const char *dir, const struct pipeline_names *names,
                       struct err *e) {
    int rc = check_tools(f, dir, &f->p.tools, names, e);
    for (int32_t i = 0; i < f->p.n_step && !rc; ++i)
        rc = check_tools(f, dir, &f->p.steps[i].tools, names, e);
    return rc ? rc : check_skills(f, dir, e);
}

static int load_pipeline(struct file *f, const char *dir, const char *path,
                         const struct pipeline_names *names, struct err *e) {
    struct yamlfile *y;
    int rc = yamlfile_open(&y, path, NULL, 0, e);
    if (!rc) rc = bind_file(f, y, e);
    if (!rc) rc = load_persona(f, dir, e);
    if (!rc) rc = check_names(f, dir, names, e);
    yamlfile_close(y);
    return rc;
}

/* name: path within dir; the caller has checked its length. */
static int file_load(struct file **out, const char *dir, const char *name, enum file_kind kind,
                     const struct pipeline_names *names, struct err *e) {
    struct buf path;
    struct file *f = mem_zalloc(sizeof *f);
    if (!f) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->refs = 1;
    f->kind = kind;
    arena_init(&f->arena, (size_t)4 << 20);
    snprintf(f->name, sizeof f->name, "%s", name);
    buf_init(&path, PATH_MAX);
    const char *own = strchr(name, '/'); /* for skills/NAME and personas/NAME */
    int rc = buf_printf(&path, "%s/%s", dir, name);
    if (rc) err_set(e, rc, "%s: path is too long", dir);
    else if (kind == FILE_RULES) rc = intent_load(&f->rules, path.p, e);
    else if (kind == FILE_SKILL) rc = skill_read(&f->skill, path.p, own + 1, &f->arena, e);
    else if (kind == FILE_PERSONA) rc = read_persona(f, dir, own + 1, &f->persona, e);
    else rc = load_pipeline(f, dir, path.p, names, e);
    buf_fini(&path);
    if (rc) file_drop(f);
    else *out = f;
    return rc;
}

int pipeline_check(const char *name, const char *text, size_t n, struct err *e) {
    struct yamlfile *y;
    struct file *f = mem_zalloc(sizeof *f);
    if (!f) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->refs = 1;
    arena_init(&f->arena, (size_t)4 << 20);
    snprintf(f->name, sizeof f->name, "%.40s.yaml", name);
    int rc = yamlfile_open(&y, f->name, text, n, e);
    if (!rc) rc = bind_file(f, y, e);
    yamlfile_close(y);
    file_drop(f);
    return rc;
}

/* ---- the folder ---- */

void pipeline_release(struct pipeline_set *s) {
    if (!s || --s->refs) return;
    for (int i = 0; i < s->n; ++i) file_drop(s->files[i]);
    mem_free(s);
}

static struct file *old_file(const struct pipeline_set *old, const char *name) {
    for (int i = 0; old && i < old->n; ++i)
        if (!strcmp(old->files[i]->name, name)) return old->files[i];
    return NULL;
}

/* The kinds of entries in the folder. A broken skill or persona is reported but does not prevent a start, because
 * such folders often come from other authors. */
static const struct shelf {
    const char *sub; /* "": the folder itself */
    enum file_kind kind;
    int most;
    size_t longest; /* longest allowed name */
    bool optional;
} shelves[] = {
    {"", FILE_PIPELINE, PIPELINE_MAX, INTENT_MAX_NAME - 1 + 5, false},
    {"skills", FILE_SKILL, PIPELINE_MAX_SKILLS, SKILL_MAX_NAME, true},
    {"personas", FILE_PERSONA, PIPELINE_MAX_PERSONAS, SKILL_MAX_NAME, true},
};

static void add_file(struct pipeline_set *s, struct file *f) {
    if (f->kind == FILE_SKILL) s->skills[s->n_of[FILE_SKILL]] = &f->skill;
    if (f->rules) s->rules = f->rules;
    ++s->n_of[f->kind];
    s->files[s->n++] = f;
}

/* Loads one entry; the first problem is kept. Returns an error only if it must prevent the first start. */
static int scan_one(struct pipeline_set *s, const struct pipeline_set *old, const char *path,
                    const struct shelf *shelf, const char *entry, struct err *e) {
    struct err why = {0};
    struct file *f = NULL;
    char name[SKILL_MAX_NAME + 16]; /* longest is at most SKILL_MAX_NAME */
    int rc;
    enum file_kind kind = strcmp(entry, "intent.yaml") != 0 ? shelf->kind : FILE_RULES;
    if (strlen(entry) > shelf->longest || s->n_of[kind] == shelf->most) {
        rc = err_set(&why, CHIMERE_ELIMIT,
                     "%s/%s%s%.200s: expected a name of at most %zu bytes, and at most %d files",
                     path, shelf->sub, *shelf->sub ? "/" : "", entry, shelf->longest, shelf->most);
    } else {
        snprintf(name, sizeof name, "%s%s%.*s", shelf->sub, *shelf->sub ? "/" : "", SKILL_MAX_NAME,
                 entry);
        rc = file_load(&f, path, name, kind, s->names, &why);
        if (rc && (f = old_file(old, name))) ++f->refs;
        if (f) add_file(s, f);
    }
    if (rc && !s->problem[0]) {
        snprintf(s->problem, sizeof s->problem, "%s", why.text);
        if (e) *e = why;
    }
    return shelf->optional ? 0 : rc;
}

static bool is_plain_file(const char *path, const char *sub, const char *name) {
    struct fs_info i;
    struct buf where;
    buf_init(&where, PATH_MAX);
    buf_printf(&where, "%s/%s/%s", path, sub, name);
    bool plain = !where.failed && !fs_lstat(where.p, &i) && i.is_file;
    buf_fini(&where);
    return plain;
}

static int scan_shelf(struct pipeline_set *s, const struct pipeline_set *old, const char *path,
                      const struct shelf *shelf, struct err *e) {
    struct buf where;
    buf_init(&where, PATH_MAX);
    buf_printf(&where, "%s/%s", path, shelf->sub);
    struct fs_folder *dir = where.failed ? NULL : fs_open(where.p);
    buf_fini(&where);
    if (!dir)
        return shelf->optional
                   ? 0
                   : err_set(e, CHIMERE_ENOENT, "%s: cannot open the folder of pipelines", path);
    int first = 0;
    for (const char *name; (name = fs_next(dir));) {
        if (name[0] == '.' || (!*shelf->sub && !str_ends(name, ".yaml"))) continue;
        /* ignore files such as a README next to the folders */
        if (*shelf->sub && is_plain_file(path, shelf->sub, name)) continue;
        int rc = scan_one(s, old, path, shelf, name, e);
        if (!first) first = rc;
    }
    fs_close(dir);
    return first;
}

static int scan(struct pipeline_set *s, const struct pipeline_set *old, const char *path,
                struct err *e) {
    int first = 0;
    for (size_t i = 0; i < sizeof shelves / sizeof *shelves; ++i) {
        int rc = scan_shelf(s, old, path, &shelves[i], e);
        if (!first) first = rc;
    }
    if (!first && !s->rules) first = err_set(e, CHIMERE_ENOENT, "%s/intent.yaml: not found", path);
    if (!first && !pipeline_find(s, "default"))
        first = err_set(e, CHIMERE_ENOENT, "%s/default.yaml: not found", path);
    return first;
}

int pipeline_dir_reload(struct pipeline_dir *d, struct err *e) {
    struct err own = {0};
    if (!e) e = &own;
    pthread_mutex_lock(&d->reloading);
    struct pipeline_set *s = mem_zalloc(sizeof *s), *old = d->now;
    if (s) s->names = &d->names;
    int rc = s ? scan(s, old, d->path, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (s) s->names = NULL;
    bool whole = s && s->rules && pipeline_find(s, "default");
    if (s && whole && (!rc || old)) { /* the first load requires that every file is valid */
        s->refs = 1;
        s->version = old ? old->version + 1 : 1;
        pthread_mutex_lock(&d->lock);
        d->now = s;
        pthread_mutex_unlock(&d->lock);
        pipeline_release(old);
    } else if (s) {
        s->refs = 1;
        pipeline_release(s);
    }
    pthread_mutex_unlock(&d->reloading);
    return rc;
}

const char *pipeline_dir_path(const struct pipeline_dir *d) { return d->path; }

struct pipeline_set *pipeline_hold(struct pipeline_dir *d) {
    pthread_mutex_lock(&d->lock);
    struct pipeline_set *s = d->now;
    ++s->refs;
    pthread_mutex_unlock(&d->lock);
    return s;
}

const struct intent_rules *pipeline_rules(const struct pipeline_set *s) { return s->rules; }

const struct pipeline *pipeline_at(const struct pipeline_set *s, int i) {
    for (int k = 0; k < s->n; ++k)
        if (s->files[k]->kind == FILE_PIPELINE && i-- == 0) return &s->files[k]->p;
    return NULL;
}

const struct pipeline *pipeline_find(const struct pipeline_set *s, const char *name) {
    const struct pipeline *p;
    for (int i = 0; (p = pipeline_at(s, i)); ++i)
        if (!strcmp(p->name, name)) return p;
    return NULL;
}

const struct skill *const *pipeline_skills(const struct pipeline_set *s, int *n) {
    *n = s->n_of[FILE_SKILL];
    return s->skills;
}

const char *pipeline_persona(const struct pipeline_set *s, const char *name) {
    for (int i = 0; i < s->n; ++i)
        if (s->files[i]->kind == FILE_PERSONA && !strcmp(s->files[i]->name + 9, name))
            return s->files[i]->persona; /* skips "personas/" */
    return NULL;
}

const char *pipeline_problem(const struct pipeline_set *s) { return s->problem; }
uint64_t pipeline_version(const struct pipeline_set *s) { return s->version; }

/* ---- watching ---- */

/* Watches the folder and the entries of its skill and persona folders. Adding a path again has no effect. */
static bool watch_paths(const struct pipeline_dir *d) {
    const uint32_t what = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE;
    bool whole = inotify_add_watch(d->inotify, d->path, what) >= 0;
    for (size_t i = 1; i < sizeof shelves / sizeof *shelves; ++i) {
        struct buf path;
        buf_init(&path, PATH_MAX);
        buf_printf(&path, "%s/%s", d->path, shelves[i].sub);
        struct fs_folder *dir = path.failed ? NULL : fs_open(path.p);
        if (dir) inotify_add_watch(d->inotify, path.p, what);
        for (const char *name; dir && (name = fs_next(dir));) {
            if (name[0] == '.') continue;
            size_t n = path.n;
            buf_printf(&path, "/%s", name);
            if (!path.failed) inotify_add_watch(d->inotify, path.p, what | IN_ONLYDIR);
            buf_cut(&path, n);
        }
        fs_close(dir);
        buf_fini(&path);
    }
    return whole;
}

static void *watch(void *ud) {
    struct pipeline_dir *d = ud;
    struct pollfd fds[2] = {{.fd = d->inotify, .events = POLLIN},
                            {.fd = d->stop, .events = POLLIN}};
    bool dirty = false;
    for (;;) {
        /* an editor writes in several steps: reload after 50 ms without events */
        int n = poll(fds, 2, dirty ? 50 : -1);
        if (fds[1].revents) return NULL;
        if (n > 0 && fds[0].revents) {
            char events[4096];
            dirty |= read(d->inotify, events, sizeof events) > 0;
        } else if (n == 0 && dirty) {
            struct err e = {0};
            dirty = false;
            watch_paths(d); /* add watches before reading, so that no change is missed */
            pipeline_dir_reload(d, &e);
            if (e.text[0]) log_warn("pipelines: %s; the version before stays in force", e.text);
            else log_info("pipelines: read again");
        }
    }
}

static int start_watch(struct pipeline_dir *d, struct err *e) {
    d->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (d->inotify < 0 && errno == ENOSYS) {
        log_info("pipelines: this system does not watch folders; changes need a restart");
        return 0;
    }
    d->stop = eventfd(0, EFD_CLOEXEC);
    if (d->inotify < 0 || d->stop < 0 || !watch_paths(d) ||
        pthread_create(&d->thread, NULL, watch, d))
        return err_set(e, CHIMERE_EIO, "%s: cannot watch the folder", d->path);
    d->watching = true;
    return 0;
}

int pipeline_dir_open(struct pipeline_dir **out, const char *path, bool watching,
                      const struct pipeline_names *names, struct err *e) {
    *out = NULL;
    struct pipeline_dir *d = mem_zalloc(sizeof *d);
    if (!d) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    d->inotify = d->stop = -1;
    if (names) d->names = *names;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->reloading, NULL);
    d->path = mem_strdup(path);
    int rc = d->path ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    /* watch before the first load, so that no change is missed */
    if (!rc && watching) rc = start_watch(d, e);
    if (!rc) rc = pipeline_dir_reload(d, e);
    if (!rc && d->now->problem[0]) log_warn("pipelines: %s", d->now->problem);
    if (rc) pipeline_dir_close(d);
    else *out = d;
    return rc;
}

void pipeline_dir_close(struct pipeline_dir *d) {
    if (!d) return;
    if (d->watching) {
        uint64_t one = 1;
        if (write(d->stop, &one, sizeof one) == sizeof one) pthread_join(d->thread, NULL);
    }
    if (d->inotify >= 0) close(d->inotify);
    if (d->stop >= 0) close(d->stop);
    pipeline_release(d->now);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->reloading);
    mem_free(d->path);
    mem_free(d);
}
