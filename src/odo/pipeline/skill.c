#include "odo/pipeline/skill.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/str.h"
#include "tools/sandbox.h"
#include "tools/tool.h"
#include "retrieval/words.h"

enum { MAX_ARGS = 32 };

static int check(struct yamlfile *y, struct skill *s, const char *name, struct err *e) {
    int32_t root = yamlfile_root(y);
    if (!s->name || strcmp(s->name, name) != 0)
        return yamlfile_fail(y, root, e, "name: expected the folder's own, %s", name);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(name) ||
        strlen(name) > SKILL_MAX_NAME)
        return yamlfile_fail(y, root, e, "name: expected at most %d of a-z 0-9 _ -",
                             SKILL_MAX_NAME);
    if (!s->about || !*s->about)
        return yamlfile_fail(y, root, e, "description: expected a sentence");
    if (s->command.n > MAX_ARGS)
        return yamlfile_fail(y, root, e, "command: expected at most %d arguments", MAX_ARGS);
    if (s->command.n && s->command.v[0][0] != '/' && !str_starts(s->command.v[0], "{folder}/"))
        return yamlfile_fail(y, root, e, "command: expected a program's whole path, got \"%.80s\"",
                             s->command.v[0]);
    return 0;
}

static int bind(struct yamlfile *y, struct skill *s, struct arena *a, struct err *e) {
    struct whole {
        struct skill s;
        int32_t unused;
    } w = {.s = *s};
    static const struct yamlfile_field fields[] = {
        {"name", YF_STR, offsetof(struct whole, s.name), 0, 0, NULL},
        {"description", YF_STR, offsetof(struct whole, s.about), 0, 0, NULL},
        {"command", YF_LIST, offsetof(struct whole, s.command), 0, 0, NULL},
        {"timeout_ms", YF_INT, offsetof(struct whole, s.timeout_ms), 10, 600000, NULL},
        {"license", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"allowed-tools", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"metadata", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"compatibility", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"version", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"homepage", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {"model", YF_NODE, offsetof(struct whole, unused), 0, 0, NULL},
        {0}};
    int rc = yamlfile_bind(y, yamlfile_root(y), fields, &w, NULL, a, e);
    *s = w.s;
    return rc;
}

int skill_parse(struct skill *out, const char *folder, const char *name, const char *text, size_t n,
                struct arena *a, struct err *e) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%.*s/SKILL.md", PATH_MAX, folder);
    *out = (struct skill){.timeout_ms = 10000};
    const char *end = n > 4 && str_starts(text, "---\n") ? strstr(text + 3, "\n---") : NULL;
    size_t after = end ? (size_t)(end - text) + 4 : 0;
    if (n > SKILL_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d bytes", path, SKILL_MAX_BYTES);
    if (!end || (text[after] && text[after] != '\n'))
        return err_set(e, CHIMERE_EFORMAT,
                       "%s:1: expected lines of \"key: value\" between two \"---\"", path);
    struct yamlfile *y;
    int rc = yamlfile_open(&y, path, text, (size_t)(end - text) + 1, e);
    if (rc) return rc;
    rc = bind(y, out, a, e);
    if (!rc) rc = check(y, out, name, e);
    yamlfile_close(y);
    while (after < n && strchr("\n ", text[after])) ++after;
    while (n > after && strchr("\n ", text[n - 1])) --n;
    if (!rc && (n - after > SKILL_MAX_TEXT || !utf8_is_valid(text + after, n - after)))
        rc = err_set(e, CHIMERE_EFORMAT, "%s: expected at most %d bytes of UTF-8 behind the keys",
                     path, SKILL_MAX_TEXT);
    if (!rc && (!(out->text = arena_strndup(a, text + after, n - after)) ||
                !(out->folder = arena_strndup(a, folder, strlen(folder)))))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    return rc;
}

int skill_read(struct skill *out, const char *folder, const char *name, struct arena *a,
               struct err *e) {
    char path[PATH_MAX + 16], *text;
    size_t n;
    snprintf(path, sizeof path, "%.*s/SKILL.md", PATH_MAX, folder);
    int rc = file_read(path, SKILL_MAX_BYTES, &text, &n, e);
    if (!rc && strlen(text) != n) rc = err_set(e, CHIMERE_EFORMAT, "%s: contains a NUL", path);
    if (!rc) rc = skill_parse(out, folder, name, text, n, a, e);
    mem_free(text);
    return rc;
}

/* ---- choosing ---- */

static bool has_word(const struct skill *s, const char *word) {
    struct buf b;
    buf_init(&b, (size_t)64 << 10);
    words_fold(&b, s->name, strlen(s->name));
    words_fold(&b, s->about, strnlen(s->about, 8192));
    bool has = b.n && !b.failed && words_count(b.p, word) > 0;
    buf_fini(&b);
    return has;
}

int skill_choose(const struct skill *const *skills, int n, const char *question) {
    struct words w;
    double best = 0;
    int chosen = -1;
    words_of(&w, question, strnlen(question, 4096));
    struct {
        double score;
        int n_word;
    } sums[256] = {{0}};
    if (n > 256) n = 256;
    for (size_t k = 0; k < w.n; ++k) {
        bool has[256];
        int n_has = 0;
        if (words_is_number(w.v[k])) continue;
        for (int i = 0; i < n; ++i) n_has += has[i] = has_word(skills[i], w.v[k]);
        for (int i = 0; i < n; ++i)
            if (has[i]) sums[i].score += log(1 + (double)(n + 1) / n_has), ++sums[i].n_word;
    }
    for (int i = 0; i < n; ++i) {
        /* at least two words and a third of the question's words must match: one common word may be chance */
        bool enough = sums[i].n_word >= 2 && (size_t)sums[i].n_word * 3 >= w.n;
        if (enough && sums[i].score > best) {
            best = sums[i].score;
            chosen = i;
        }
    }
    return chosen;
}

/* ---- running ---- */

/* Replaces "{folder}" at the start of an argument by the folder's path inside the sandbox. */
static int put_argument(struct arena *a, const char **out, const char *arg, const char *input) {
    struct buf b;
    if (!strcmp(arg, "{input}")) {
        *out = input;
        return 0;
    }
    buf_init(&b, (size_t)1 << 16);
    bool inside = str_starts(arg, "{folder}");
    buf_printf(&b, "%s%s", inside ? SANDBOX_FOLDER : "", inside ? arg + 8 : arg);
    *out = b.failed ? NULL : arena_strndup(a, b.p ? b.p : "", b.n);
    buf_fini(&b);
    return *out ? 0 : CHIMERE_ENOMEM;
}

static int run_skill(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                     struct err *e) {
    const struct skill *s = ud;
    const json_t *given = json_object_get(args, "input");
    const char *input = json_string_value(given), *argv[MAX_ARGS + 1];
    struct arena a;
    bool placed = false;
    int rc = 0;
    if (!input) input = "";
    if (json_string_length(given) > SKILL_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "input: expected at most %d bytes", SKILL_MAX_BYTES);
    arena_init(&a, (size_t)1 << 20);
    for (size_t i = 0; i < s->command.n && !rc; ++i) {
        placed |= !strcmp(s->command.v[i], "{input}");
        rc = put_argument(&a, &argv[i], s->command.v[i], input);
    }
    argv[s->command.n] = NULL;
    struct sandbox_job job = {.argv = argv,
                              .folder = s->folder,
                              .input = placed ? "" : input,
                              .n_input = placed ? 0 : strlen(input),
                              .cancelled = env->cancelled,
                              .deadline_ns = env->deadline_ns,
                              .owner = env->owner,
                              .output = tool_progress,
                              .ud = env};
    struct sandbox_result r;
    struct buf raw;
    buf_init(&raw, TOOL_MAX_OUTPUT);
    sandbox_defaults(&job.limits);
    job.limits.wall_ms = s->timeout_ms;
    job.limits.cpu_s = s->timeout_ms / 1000 + 1;
    if (rc) err_set(e, rc, "out of memory");
    else rc = sandbox_run(&job, &raw, &r, e);
    if (!rc) sandbox_text(out, &raw, &job, &r);
    env->failed = !rc && !sandbox_succeeded(&r);
    env->status = rc ? 0 : r.status;
    buf_fini(&raw);
    arena_fini(&a);
    return rc;
}

int skill_tool(const struct skill *s, struct tool *out, struct err *e) {
    *out = (struct tool){.flags = TOOL_EFFECT | TOOL_CONFINED,
                         /* the call may have to wait for a sandbox */
                         .deadline_ms = s->timeout_ms + 30000,
                         .run = run_skill,
                         .ud = (void *)s};
    if (!s->command.n) return err_set(e, CHIMERE_ENOENT, "skill %s has no command", s->name);
    snprintf(out->name, sizeof out->name, "skill_%s", s->name);
    out->spec = tool_spec(out->name, s->about,
                          "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\","
                          "\"description\":\"What it works on\"}},\"required\":[\"input\"]}");
    return out->spec ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}
