#include "net/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* ---- names ---- */

static bool is_name(const char *s, size_t n, size_t max) {
    if (n == 0 || n > max || s[0] == '.' || s[0] == '-') return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
        if (!ok || (c == '.' && s[i + 1] == '.')) return false;
    }
    return true;
}

int hub_parse(struct hub_ref *r, const char *text, struct err *e) {
    const char *s = str_starts(text, "hf:") ? text + 3 : text;
    size_t n_owner = strcspn(s, "/:");
    const char *repo = s[n_owner] == '/' ? s + n_owner + 1 : "";
    size_t n_repo = strcspn(repo, ":");
    const char *pick = repo[n_repo] == ':' ? repo + n_repo + 1 : "";
    bool ok = is_name(s, n_owner, sizeof r->owner - 1) &&
              is_name(repo, n_repo, sizeof r->repo - 1) && strlen(pick) < sizeof r->pick &&
              (!*pick || hub_path_is_safe(pick)) && (*pick || !repo[n_repo]);
    if (!ok) {
        err_set(e, CHIMERE_EINVAL,
                "'%.200s': expected hf:OWNER/REPO, hf:OWNER/REPO:FILE or hf:OWNER/REPO:TYPE", text);
        err_hint(e, "for example hf:OWNER/REPO:Q4_K_M; chimere recommend lists short names");
        return CHIMERE_EINVAL;
    }
    snprintf(r->owner, sizeof r->owner, "%.*s", (int)n_owner, s);
    snprintf(r->repo, sizeof r->repo, "%.*s", (int)n_repo, repo);
    snprintf(r->pick, sizeof r->pick, "%s", pick);
    return 0;
}

bool hub_path_is_safe(const char *path) {
    size_t n = strlen(path);
    int depth = 1;
    if (n == 0 || n > HUB_MAX_PATH_BYTES || !utf8_is_valid(path, n)) return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)path[i];
        bool begins = i == 0 || path[i - 1] == '/';
        if (c < 0x20 || c == 0x7f || c == '\\' || c == ':') return false;
        if (begins && (c == '/' || c == '.' || c == '-')) return false;
        /* leaves space for suffixes such as .sha256 */
        if (begins && strcspn(path + i, "/") > 240) return false;
        depth += c == '/';
    }
    return path[n - 1] != '/' && depth <= HUB_MAX_DEPTH;
}

/* ---- listings ---- */

void hub_list_init(struct hub_list *l) {
    *l = (struct hub_list){.n = 0};
    arena_init(&l->arena, (size_t)64 << 20);
}

void hub_list_fini(struct hub_list *l) { arena_fini(&l->arena); }

static bool is_sha256(const char *s) {
    return strlen(s) == 64 && strspn(s, "0123456789abcdefABCDEF") == 64;
}

int hub_list_add(struct hub_list *l, const char *path, uint64_t size, const char *sha256) {
    if (!hub_path_is_safe(path)) return CHIMERE_EINVAL;
    if (l->n == HUB_MAX_FILES || size > HUB_MAX_FILE_BYTES) return CHIMERE_ELIMIT;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct hub_file *files = arena_alloc(&l->arena, cap * sizeof *files);
        if (!files) return CHIMERE_ENOMEM;
        if (l->n) memcpy(files, l->files, l->n * sizeof *files);
        l->files = files;
        l->cap = cap;
    }
    struct hub_file *f = &l->files[l->n];
    *f = (struct hub_file){.path = arena_strndup(&l->arena, path, strlen(path)), .size = size};
    if (!f->path) return CHIMERE_ENOMEM;
    if (sha256 && is_sha256(sha256)) snprintf(f->sha256, sizeof f->sha256, "%s", sha256);
    l->n++;
    return 0;
}

static int read_file(struct hub_list *l, const json_t *o, struct err *e) {
    const char *path = json_string_value(json_object_get(o, "rfilename"));
    const json_t *lfs = json_object_get(o, "lfs"), *size = json_object_get(lfs, "size");
    const char *sha = json_string_value(json_object_get(lfs, "sha256"));
    if (!path) return err_set(e, CHIMERE_EFORMAT, "listing: a file has no 'rfilename'");
    if (!size) size = json_object_get(o, "size");
    json_int_t n = json_integer_value(size);
    if (!hub_path_is_safe(path)) return 0; /* for example .gitattributes; it is not a model */
    if (!json_is_integer(size) || n < 0 || (uint64_t)n > HUB_MAX_FILE_BYTES)
        return err_set(e, CHIMERE_EFORMAT, "listing: '%.200s': expected a size of 0 to 4 TiB",
                       path);
    if (sha && !is_sha256(sha))
        return err_set(e, CHIMERE_EFORMAT, "listing: '%.200s': expected a SHA-256 of 64 digits",
                       path);
    int rc = hub_list_add(l, path, (uint64_t)n, sha);
    if (rc == CHIMERE_ELIMIT)
        return err_set(e, rc, "listing: expected at most %d files, got more", HUB_MAX_FILES);
    return rc ? err_set(e, rc, "out of memory") : 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

int hub_list_read(struct hub_list *l, const char *json, size_t n, struct err *e) {
    json_error_t je;
    json_t *o = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je), *f;
    if (!o) return err_set(e, CHIMERE_EFORMAT, "listing: expected JSON: %s", je.text);
    const char *sha = json_string_value(json_object_get(o, "sha"));
    const json_t *files = json_object_get(o, "siblings");
    int rc = 0;
    if (!sha || strlen(sha) > 64 || strspn(sha, "0123456789abcdef") != strlen(sha) || !*sha)
        rc = err_set(e, CHIMERE_EFORMAT, "listing: expected a revision in 'sha'");
    else if (!json_is_array(files))
        rc = err_set(e, CHIMERE_EFORMAT, "listing: expected files in 'siblings'");
    else snprintf(l->revision, sizeof l->revision, "%s", sha);
    size_t i;
    json_array_foreach(files, i, f) {
        if (rc) break;
        rc = read_file(l, f, e);
    }
    json_decref(o);
    if (!rc && l->n) qsort(l->files, l->n, sizeof *l->files, by_path);
    return rc;
}

/* ---- choice of a file ---- */

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Parses NAME-00002-of-00003.gguf as part 2 of 3. Returns false if the name has no such form. */
static bool split_of(const char *path, size_t *n_stem, unsigned *no, unsigned *count) {
    size_t n = strlen(path);
    char tail[24];
    if (n <= 20 || !str_ends(path, ".gguf")) return false;
    snprintf(tail, sizeof tail, "%s", path + n - 20); /* -00002-of-00003.gguf */
    char digits[] = "-#####-of-#####.gguf";
    for (int i = 0; i < 20; i++)
        if (digits[i] == '#' ? tail[i] < '0' || tail[i] > '9' : tail[i] != digits[i]) return false;
    *no = (unsigned)strtoul(tail + 1, NULL, 10);
    *count = (unsigned)strtoul(tail + 10, NULL, 10);
    *n_stem = n - 20;
    return *count >= 1 && *count <= HUB_MAX_PARTS && *no >= 1 && *no <= *count;
}

/* Returns true for a model's weights, once per model: the first part if it is split. Projectors and importance matrices
 * do not count as models. */
static bool is_model(const char *path) {
    const char *name = base_of(path);
    size_t n_stem;
    unsigned no, count;
    if (!str_ends(name, ".gguf") || str_starts(name, "mmproj") || strstr(name, "imatrix"))
        return false;
    return !split_of(path, &n_stem, &no, &count) || no == 1;
}

static size_t stem_bytes(const char *path) {
    size_t n_stem;
    unsigned no, count;
    return split_of(path, &n_stem, &no, &count) ? n_stem : strlen(path) - 5;
}

static bool equal_nocase(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char x = a[i], y = b[i];
        if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
        if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
        if (x != y) return false;
    }
    return true;
}

/* Returns whether the name ends with the type: MODEL-Q4_K_M, MODEL.q4_k_m, Q4_K_M; but not MODEL-IQ4_K_M. */
static bool has_type(const char *path, const char *type) {
    size_t n = stem_bytes(path), n_type = strlen(type);
    if (n < n_type || !equal_nocase(path + n - n_type, type, n_type)) return false;
    return n == n_type || strchr("-./", path[n - n_type - 1]) != NULL;
}

static bool is_meant(const char *path, const char *pick, bool is_file) {
    if (!is_file) return is_model(path) && has_type(path, pick);
    return !strcmp(path, pick) || !strcmp(base_of(path), pick);
}

static void list_models(const struct hub_list *l, char *out, size_t size) {
    size_t at = 0, n_left = 0;
    out[0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!is_model(l->files[i].path)) continue;
        size_t room = size - at, need = strlen(l->files[i].path) + 2;
        if (need + 16 >= room) n_left++;
        else at += (size_t)snprintf(out + at, room, "%s%s", at ? ", " : "", l->files[i].path);
    }
    if (n_left) snprintf(out + at, size - at, ", %zu more", n_left);
}

static size_t find(const struct hub_list *l, const char *pick, size_t *first) {
    bool is_file = strchr(pick, '/') || (strchr(pick, '.') && *pick);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (*pick ? !is_meant(path, pick, is_file) : !is_model(path)) continue;
        if (n++ == 0) *first = i;
    }
    return n;
}

/* Checks that all parts are present. They are consecutive, because the list is sorted. */
static int count_parts(const struct hub_list *l, size_t first, size_t *n, struct err *e) {
    const char *path = l->files[first].path;
    size_t n_stem, stem;
    unsigned no, count, k, of;
    *n = 1;
    if (!split_of(path, &n_stem, &no, &count)) return 0;
    for (unsigned i = 1; i < count; i++) {
        const char *next = first + i < l->n ? l->files[first + i].path : "";
        if (!split_of(next, &stem, &k, &of) || stem != n_stem || memcmp(next, path, stem) ||
            k != i + 1 || of != count)
            return err_set(e, CHIMERE_EFORMAT, "%.200s: part %u of %u is missing", path, i + 1,
                           count);
    }
    *n = count;
    return 0;
}

int hub_choose(const struct hub_list *l, const struct hub_ref *r, size_t *first, size_t *n,
               struct err *e) {
    static const char *const preferred[] = {"Q4_K_M", "Q8_0"};
    size_t found = find(l, r->pick, first);
    for (size_t i = 0; !*r->pick && found != 1 && i < 2; i++) found = find(l, preferred[i], first);
    if (found == 1) {
        size_t stem;
        unsigned no, count;
        if (split_of(l->files[*first].path, &stem, &no, &count) && no != 1)
            return err_set(e, CHIMERE_EINVAL, "%s: expected the first part, got part %u of %u",
                           r->pick, no, count);
        return count_parts(l, *first, n, e);
    }
    char models[300];
    list_models(l, models, sizeof models);
    if (!models[0])
        return err_set(e, CHIMERE_ENOENT, "%s/%s: no GGUF file among %zu files", r->owner, r->repo,
                       l->n);
    if (!*r->pick)
        return err_set(e, CHIMERE_EINVAL, "%s/%s: which one? there are: %s", r->owner, r->repo,
                       models);
    return err_set(e, found ? CHIMERE_EINVAL : CHIMERE_ENOENT, "%s/%s: %s '%s'; there are: %s",
                   r->owner, r->repo, found ? "more than one file for" : "no file for", r->pick,
                   models);
}

/* ---- checkpoints ---- */

/* Weights are those of the folder itself; Mistral's "consolidated" files repeat them. */
static bool is_of_checkpoint(const char *path) {
    static const char *const names[] = {
        "config.json",     "generation_config.json", "model.safetensors.index.json",
        "tokenizer.json",  "tokenizer_config.json",  "special_tokens_map.json",
        "tekken.json",     "tiktoken.model",         "qwen.tiktoken",
        "tokenizer.model", "chat_template.jinja",    "chat_template.json",
        "modules.json",    "1_Pooling/config.json",  "README.md"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0) return true;
    const char *slash = strchr(path, '/');
    if (slash && str_ends(path, "_Dense/config.json")) return !strchr(slash + 1, '/');
    if (slash && str_ends(path, "_Dense/model.safetensors")) return !strchr(slash + 1, '/');
    return str_ends(path, ".safetensors") && !slash && !str_starts(path, "consolidated") &&
           !str_starts(path, "adapter_");
}

int hub_keep_checkpoint(struct hub_list *l, const struct hub_ref *r, struct err *e) {
    size_t n = 0, n_weights = 0, n_all = l->n;
    bool has_config = false;
    if (*r->pick)
        return err_set(e, CHIMERE_EINVAL, "%s/%s: expected a repository, got a file of it: '%s'",
                       r->owner, r->repo, r->pick);
    for (size_t i = 0; i < l->n; i++) {
        const char *path = l->files[i].path;
        if (!is_of_checkpoint(path)) continue;
        n_weights += str_ends(path, ".safetensors");
        has_config |= strcmp(path, "config.json") == 0;
        l->files[n++] = l->files[i];
    }
    l->n = n;
    if (n_weights && has_config) return 0;
    return err_set(e, CHIMERE_ENOENT, "%s/%s: expected %s among %zu files, got none", r->owner,
                   r->repo, n_weights ? "config.json" : "safetensors files", n_all);
}
