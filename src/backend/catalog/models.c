#include "backend/catalog/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

struct entry {
    char name[MODELS_MAX_NAME_BYTES];
    struct load_params how;
    char *path;   /* owned copy of how.path */
    char **loras; /* owned [how.n_lora]; copy of how.loras */
    char *draft;  /* owned copy of how.plan.engine.draft, or NULL */
    enum model_state state;
    struct loaded loaded;    /* valid if READY */
    struct backend *backend; /* owned; valid if READY */
    int n_held;
    int64_t used_ns;
    struct err err;
};

struct models {
    pthread_mutex_t lock; /* guards the rows; not held while a model is read */
    pthread_cond_t changed;
    struct entry *rows[MODELS_MAX]; /* owned [n] */
    size_t n;
    uint64_t budget_bytes;
    int most;
    const char *engram_dir; /* borrowed, or NULL */
    /* a model is being loaded; one at a time, because two plans would count the same free memory */
    bool loading;
};

const char *models_state_name(enum model_state s) {
    static const char *const names[] = {"listed", "loading", "ready", "failed"};
    return names[s];
}

int models_new(struct models **out, uint64_t budget_bytes, int most, struct err *e) {
    struct models *r = *out = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->budget_bytes = budget_bytes;
    r->most = most;
    return 0;
}

void models_engram_dir(struct models *r, const char *dir) { r->engram_dir = dir; }

static void close_row(struct entry *w, struct backend *b) {
    if (b) b->ops->close(b);
    load_close(&w->loaded);
}

static void free_row(struct entry *w) {
    if (!w) return;
    close_row(w, w->backend);
    for (size_t i = 0; w->loras && i < w->how.n_lora; i++) mem_free(w->loras[i]);
    mem_free(w->loras);
    mem_free(w->draft);
    mem_free(w->path);
    mem_free(w);
}

void models_free(struct models *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) free_row(r->rows[i]);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* ---- names ---- */

static struct entry *find(struct models *r, const char *name) {
    if (!name || !*name) return r->n ? r->rows[0] : NULL;
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->rows[i]->name, name)) return r->rows[i];
    return NULL;
}

static int unknown(const struct models *r, const char *name, struct err *e) {
    char names[300];
    size_t at = 0;
    names[0] = 0;
    for (size_t i = 0; i < r->n && at + MODELS_MAX_NAME_BYTES + 2 < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               r->rows[i]->name);
    return err_set(e, CHIMERE_ENOENT, "model: no model '%.100s'; there are: %s", name ? name : "",
                   names);
}

static bool is_name(const char *s) {
    size_t n = strlen(s);
    if (n == 0 || n >= MODELS_MAX_NAME_BYTES) return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("-._:/@+", c)))
            return false;
    }
    return true;
}

static int copy_params(struct entry *w, const struct load_params *how) {
    w->how = *how;
    w->path = mem_strdup(how->path);
    w->loras = mem_alloc_array(how->n_lora + 1, sizeof *w->loras);
    if (!w->path || !w->loras) return CHIMERE_ENOMEM;
    for (size_t i = 0; i < how->n_lora; i++)
        if (!(w->loras[i] = mem_strdup(how->loras[i]))) return CHIMERE_ENOMEM;
    if (how->plan.engine.draft && !(w->draft = mem_strdup(how->plan.engine.draft)))
        return CHIMERE_ENOMEM;
    w->how.path = w->path;
    w->how.plan.engine.draft = w->draft;
    w->how.loras = (const char *const *)w->loras;
    return 0;
}

int models_add(struct models *r, const char *name, const struct load_params *how, struct err *e) {
    if (!is_name(name))
        return err_set(e, CHIMERE_EINVAL,
                       "model '%.100s': expected a name of letters, digits and -._:/@+, shorter "
                       "than %d",
                       name, MODELS_MAX_NAME_BYTES);
    struct entry *w = mem_zalloc(sizeof *w);
    int rc = w ? copy_params(w, how) : CHIMERE_ENOMEM;
    if (rc) err_set(e, rc, "out of memory");
    if (!rc) snprintf(w->name, sizeof w->name, "%s", name);
    pthread_mutex_lock(&r->lock);
    if (!rc && find(r, name))
        rc = err_set(e, CHIMERE_EINVAL, "model '%s': the name is taken", name);
    if (!rc && r->n == MODELS_MAX)
        rc = err_set(e, CHIMERE_ELIMIT, "models: expected at most %d", MODELS_MAX);
    if (!rc) r->rows[r->n++] = w;
    pthread_mutex_unlock(&r->lock);
    if (rc) free_row(w);
    return rc;
}

/* Returns true for NAME-0000I-of-0000N.gguf with I > 1. */
static bool is_later_part(const char *path) {
    const char *of = strstr(path, "-of-");
    return of && of - path > 6 && of[-6] == '-' && strncmp(of - 5, "00001", 5) != 0;
}

static int add_file(struct models *r, const char *path, const char *name_gguf,
                    const struct load_params *how, struct err *e) {
    char name[4096];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(name_gguf) - 5), name_gguf);
    if (!is_name(name) || is_later_part(name_gguf)) return 0;
    struct load_params p = *how;
    p.path = path;
    int rc = models_add(r, name, &p, e);
    return rc == CHIMERE_EINVAL ? 0 : rc; /* the name is taken: two names refer to one file */
}

static int add_under(struct models *r, const char *root, const char *dir, int depth,
                     const struct load_params *how, struct err *e) {
    struct fs_folder *d = fs_open(dir);
    size_t n_root = strlen(root);
    int rc = 0;
    for (const char *name; d && !rc && (name = fs_next(d));) {
        char path[4096], real[4096];
        struct fs_info st;
        int n = snprintf(path, sizeof path, "%s/%s", dir, name);
        if (name[0] == '.' || (size_t)n >= sizeof path) continue;
        if (!realpath(path, real) || fs_stat(real, &st)) continue;
        /* a link out of the folder */
        if (strncmp(real, root, n_root) || real[n_root] != '/') continue;
        if (st.is_folder && depth < 8) rc = add_under(r, root, path, depth + 1, how, e);
        else if (st.is_file && str_ends(real, ".gguf"))
            rc = add_file(r, real, real + n_root + 1, how, e);
    }
    if (d) fs_close(d);
    return rc;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct entry *const *)a)->name, (*(struct entry *const *)b)->name);
}

int models_add_dir(struct models *r, const char *dir, const struct load_params *how,
                   struct err *e) {
    char root[4096];
    if (!realpath(dir, root)) return err_set(e, CHIMERE_ENOENT, "%s: no such directory", dir);
    size_t before = r->n;
    int rc = add_under(r, root, root, 1, how, e);
    pthread_mutex_lock(&r->lock);
    if (r->n > before) qsort(r->rows + before, r->n - before, sizeof *r->rows, by_name);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* ---- loading ---- */

/* Returns the least recently used model that is not held. */
static struct entry *idlest(struct models *r) {
    struct entry *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        struct entry *w = r->rows[i];
        if (w->state != MODEL_READY || w->n_held) continue;
        if (!best || w->used_ns < best->used_ns) best = w;
    }
    return best;
}

static void unload_row(struct models *r, struct entry *w) {
    w->state = MODEL_LOADING; /* prevents others from acquiring it */
    struct backend *b = w->backend;
    w->backend = NULL;
    pthread_mutex_unlock(&r->lock);
    close_row(w, b);
    pthread_mutex_lock(&r->lock);
    w->state = MODEL_LISTED;
    pthread_cond_broadcast(&r->changed);
}

static uint64_t bytes_taken(const struct models *r, int *n) {
    uint64_t sum = 0;
    *n = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->rows[i]->state != MODEL_READY) continue;
        sum += r->rows[i]->loaded.plan.total_bytes;
        ++*n;
    }
    return sum;
}

static int open_row(struct entry *w, const struct load_params *how, const char *engram_dir,
                    struct backend **out, struct err *e) {
    int rc = load_open(&w->loaded, how, e);
    if (rc) return rc;
    const struct backend_model m = {.m = w->loaded.model,
                                    .gguf = w->loaded.gguf,
                                    .engine = w->loaded.engine,
                                    .vision = w->loaded.vision,
                                    .tok = w->loaded.tok,
                                    .template = w->loaded.template,
                                    .loras = w->loaded.loras,
                                    .n_lora = w->loaded.n_lora,
                                    .n_seq = load_n_seq(&w->loaded),
                                    .engram_dir = engram_dir,
                                    .shared_dir = how->plan.engine.cache.shared_dir};
    rc = backend_local_new(out, &m, w->name, e);
    if (rc) load_close(&w->loaded);
    return rc;
}

/* Call with the lock held; it is released while the file is read. in_memory: refuse to leave experts on disk. */
static int try_row(struct models *r, struct entry *w, bool in_memory, struct err *e) {
    int n;
    uint64_t taken = bytes_taken(r, &n);
    struct load_params how = w->how;
    if (r->budget_bytes)
        how.plan.budget_bytes = r->budget_bytes > taken ? r->budget_bytes - taken : 1;
    how.plan.in_memory = in_memory;
    if (r->most && n >= r->most)
        return err_set(e, CHIMERE_EBUSY, "model: '%s' has to wait: %d models are loaded and in use",
                       w->name, n);
    pthread_mutex_unlock(&r->lock);
    struct backend *backend = NULL;
    int rc = open_row(w, &how, r->engram_dir, &backend, e);
    pthread_mutex_lock(&r->lock);
    w->backend = backend;
    return rc;
}

static int load_row(struct models *r, struct entry *w, struct err *e) {
    while (r->loading) pthread_cond_wait(&r->changed, &r->lock);
    if (w->state == MODEL_READY || w->state == MODEL_LOADING) return 0;
    w->state = MODEL_LOADING;
    r->loading = true;
    int rc;
    for (;;) {
        /* unload idle models before experts are left on disk */
        rc = try_row(r, w, idlest(r) != NULL, e);
        bool wants_room = rc == CHIMERE_ELIMIT || rc == CHIMERE_EBUSY || rc == CHIMERE_ENOMEM;
        struct entry *idle = wants_room ? idlest(r) : NULL;
        if (!idle) break;
        unload_row(r, idle);
    }
    r->loading = false;
    w->state = rc ? MODEL_FAILED : MODEL_READY;
    w->err = (struct err){.code = 0};
    if (rc) w->err = *e;
    pthread_cond_broadcast(&r->changed);
    return rc;
}

/* Call with the lock held. Returns when the row is READY; loads it unless another thread does. */
static int make_ready(struct models *r, struct entry *w, struct err *e) {
    int rc = 0;
    while (!rc && w->state != MODEL_READY) {
        if (w->state == MODEL_LOADING) pthread_cond_wait(&r->changed, &r->lock);
        else rc = load_row(r, w, e);
    }
    return rc;
}

int models_acquire(struct models *r, const char *name, struct backend **out, struct err *e) {
    *out = NULL;
    struct err own = {0};
    if (!e) e = &own;
    pthread_mutex_lock(&r->lock);
    struct entry *w = find(r, name);
    int rc = w ? make_ready(r, w, e) : unknown(r, name, e);
    if (!rc) {
        w->n_held++;
        w->used_ns = clock_ns();
        *out = w->backend;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void models_release(struct models *r, struct backend *b) {
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n; i++)
        if (r->rows[i]->backend == b) r->rows[i]->n_held--;
    pthread_mutex_unlock(&r->lock);
}

int models_load(struct models *r, const char *name, struct err *e) {
    struct backend *b;
    int rc = models_acquire(r, name, &b, e);
    if (!rc) models_release(r, b);
    return rc;
}

int models_unload(struct models *r, const char *name, struct err *e) {
    pthread_mutex_lock(&r->lock);
    struct entry *w = find(r, name);
    int rc = w ? 0 : unknown(r, name, e);
    while (!rc && w->state == MODEL_LOADING) pthread_cond_wait(&r->changed, &r->lock);
    if (!rc && w->n_held)
        rc = err_set(e, CHIMERE_EBUSY, "model: '%s' is answering %d requests now", w->name,
                     w->n_held);
    if (!rc && w->state == MODEL_READY) unload_row(r, w);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

size_t models_list(struct models *r, struct model_row *rows, size_t max) {
    pthread_mutex_lock(&r->lock);
    size_t n = r->n;
    for (size_t i = 0; i < n && i < max; i++) {
        const struct entry *w = r->rows[i];
        rows[i] = (struct model_row){
            .state = w->state, .n_held = w->n_held, .used_ns = w->used_ns, .err = w->err};
        snprintf(rows[i].name, sizeof rows[i].name, "%s", w->name);
        if (w->state == MODEL_READY) rows[i].plan = w->loaded.plan;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}
