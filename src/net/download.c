#include "net/download.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/fetch.h"

enum {
    MIN_PART_BYTES = 4 << 20, /* for a smaller part, another connection costs more than it gains */
    SAVE_BYTES = 32 << 20,    /* bytes between two writes of the state file */
    MAX_STATE_BYTES = 4096,
    CHECK_BYTES = 1 << 20,
    MIN_STALL_BYTES = 4096,   /* least progress within stall_ms */
    MIN_TRY_BYTES = 64 << 10, /* an attempt with this much progress is not counted as failed */
};

struct part {
    uint64_t at, end; /* at: next byte to receive; end: position after the last byte */
    int32_t n_failed; /* consecutive attempts without progress */
    int64_t ready_ns; /* do not start before this time */
    uint64_t asked;   /* `at` when the current attempt began */
    struct work *w;
};

struct work {
    const struct download *d;
    char part_path[4096], state_path[4096];
    int fd;
    struct part parts[DOWNLOAD_MAX_PARTS];
    int32_t n_part;
    uint64_t n_unsaved;
    struct err e; /* error of our callbacks */
};

static int fail_errno(struct work *w, const char *verb) {
    return err_set(&w->e, CHIMERE_EIO, "%s: cannot %s: %s", w->part_path, verb, strerror(errno));
}

/* ---- the state file ----
 *
 *   chimere-download 1
 *   LENGTH SHA256
 *   AT END        one line per part */

static int save_state(struct work *w) {
    if (!w->d->sha256) return 0;
    struct file_writer f;
    int rc = file_writer_open(&f, w->state_path, &w->e);
    if (rc) return rc;
    fprintf(f.f, "chimere-download 1\n%" PRIu64 " %s\n", w->d->length, w->d->sha256);
    for (int32_t i = 0; i < w->n_part; i++)
        fprintf(f.f, "%" PRIu64 " %" PRIu64 "\n", w->parts[i].at, w->parts[i].end);
    w->n_unsaved = 0;
    return file_writer_commit(&f, &w->e);
}

/* The parts must cover the length without gap or overlap; otherwise the file was changed by something else and is
 * ignored. */
static bool parse_state(struct work *w, const char *text) {
    uint64_t length, end = 0;
    char sha[65];
    int used = 0;
    if (sscanf(text, "chimere-download 1\n%" SCNu64 " %64s\n%n", &length, sha, &used) != 2 || !used)
        return false;
    if (length != w->d->length || !str_eq_nocase(sha, w->d->sha256)) return false;
    int32_t n = 0;
    uint64_t at, to;
    for (text += used; sscanf(text, "%" SCNu64 " %" SCNu64 "\n%n", &at, &to, &used) == 2;
         text += used) {
        if (n == DOWNLOAD_MAX_PARTS || at < end || at > to || to > length) return false;
        w->parts[n++] = (struct part){.at = at, .end = to, .w = w};
        end = to;
    }
    w->n_part = n;
    return n > 0 && end == length && !*text;
}

static bool load_state(struct work *w) {
    char *text;
    size_t n;
    struct stat st;
    if (!w->d->sha256 || fstat(w->fd, &st) || (uint64_t)st.st_size != w->d->length) return false;
    if (file_read(w->state_path, MAX_STATE_BYTES, &text, &n, NULL)) return false;
    bool ok = parse_state(w, text);
    mem_free(text);
    return ok;
}

static void plan_parts(struct work *w, int32_t n_want) {
    uint64_t length = w->d->length, most = length / MIN_PART_BYTES;
    if (n_want > DOWNLOAD_MAX_PARTS) n_want = DOWNLOAD_MAX_PARTS;
    w->n_part = most < 1 ? 1 : most < (uint64_t)n_want ? (int32_t)most : n_want;
    uint64_t size = length / (uint64_t)w->n_part;
    for (int32_t i = 0; i < w->n_part; i++)
        w->parts[i] = (struct part){.at = size * (uint64_t)i,
                                    .end = i == w->n_part - 1 ? length : size * (uint64_t)(i + 1),
                                    .w = w};
}

/* ---- transfers ---- */

static void report(const struct work *w) {
    uint64_t missing = 0;
    for (int32_t i = 0; i < w->n_part; i++) missing += w->parts[i].end - w->parts[i].at;
    if (w->d->on_bytes) w->d->on_bytes(w->d->ud, w->d->length - missing);
}

static int on_head(void *ud, const struct fetch_reply *r) {
    struct part *p = ud;
    struct work *w = p->w;
    const struct download *d = w->d;
    uint64_t from = r->from;
    if (r->status == 200 && w->n_part == 1) {
        p->at = from = 0; /* the server ignores ranges: start from the beginning */
        if (!r->has_length) return 0;
    }
    if (r->has_length && from == p->at && r->length == d->length) return 0;
    return err_set(&w->e, CHIMERE_EMISMATCH,
                   "%s: asked for the bytes from %" PRIu64 " of %" PRIu64
                   ", the server answered %d with those from %" PRIu64 " of %" PRIu64,
                   d->path, p->at, d->length, r->status, from, r->length);
}

static int on_body(void *ud, const char *p, size_t n) {
    struct part *part = ud;
    struct work *w = part->w;
    if (n > part->end - part->at)
        return err_set(&w->e, CHIMERE_EMISMATCH,
                       "%s: expected %" PRIu64 " bytes from %" PRIu64 ", got more", w->d->path,
                       part->end - part->asked, part->asked);
    for (size_t put = 0; put < n;) {
        ssize_t k = pwrite(w->fd, p + put, n - put, (off_t)part->at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return fail_errno(w, "write");
        put += (size_t)k;
        part->at += (uint64_t)k;
    }
    w->n_unsaved += n;
    report(w);
    if (w->n_unsaved >= SAVE_BYTES) return save_state(w);
    return 0;
}

static bool is_cancelled(void *ud) {
    const struct download *d = ((struct part *)ud)->w->d;
    return d->is_cancelled && d->is_cancelled(d->ud);
}

static enum fetch_next next(void *ud, int32_t i, struct fetch_request *r) {
    struct work *w = ud;
    struct part *p = &w->parts[i];
    if (p->at == p->end) return FETCH_STOP;
    /* so that the transfer starts and its own check reports the cancellation */
    if (is_cancelled(p)) p->ready_ns = 0;
    if (clock_ns() < p->ready_ns) return FETCH_LATER;
    p->asked = p->at;
    *r = (struct fetch_request){.url = w->d->url,
                                .bearer = w->d->bearer,
                                .from = p->at,
                                .n_range = p->end - p->at,
                                .max_bytes = UINT64_MAX, /* on_body checks the length */
                                .stall_ms = w->d->stall_ms,
                                .min_bytes = MIN_STALL_BYTES,
                                .public_only = w->d->public_only,
                                .on_head = on_head,
                                .on_body = on_body,
                                .is_cancelled = is_cancelled,
                                .ud = p};
    if (p->end == w->d->length) r->n_range = 0;
    return FETCH_START;
}

static int done(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e) {
    struct work *w = ud;
    struct part *p = &w->parts[i];
    if (w->e.code) {
        *e = w->e;
        return w->e.code;
    }
    if (!rc) {
        const struct fetch_request r = {.url = w->d->url};
        rc = fetch_status_error(&r, reply, e);
    }
    if (!rc && p->at == p->end) return 0;
    if (!rc)
        rc = err_set(e, CHIMERE_EIO,
                     "%.300s: expected bytes up to %" PRIu64 ", the body ended at %" PRIu64,
                     w->d->url, p->end, p->at);
    if (rc != CHIMERE_EIO && rc != CHIMERE_ETIMEOUT && rc != CHIMERE_EBUSY) return rc;
    if (p->at >= p->asked + MIN_TRY_BYTES) p->n_failed = 0;
    int32_t most = w->d->n_try ? w->d->n_try : 8;
    if (++p->n_failed >= most) {
        err_prefix(e, "tried %d times", most);
        return rc;
    }
    int64_t wait_ms = w->d->wait_ms ? w->d->wait_ms : 1000;
    wait_ms <<= p->n_failed < 5 ? p->n_failed - 1 : 4;
    int64_t asked_ms = reply->retry_after_s < 300 ? reply->retry_after_s * 1000 : 300000;
    if (asked_ms > wait_ms) wait_ms = asked_ms;
    p->ready_ns = clock_ns() + wait_ms * 1000000;
    return 0;
}

/* Several parts need a server that supports ranges. A request for one byte shows this. If that request fails, the parts
 * will report the error. */
static int on_probe(void *ud, const struct fetch_reply *r) {
    (void)ud;
    return r->status == 206 ? 0 : CHIMERE_EUNSUPPORTED;
}

static bool has_ranges(struct work *w) {
    struct fetch_request r = {.url = w->d->url,
                              .bearer = w->d->bearer,
                              .n_range = 1,
                              .stall_ms = w->d->stall_ms,
                              .public_only = w->d->public_only,
                              .on_head = on_probe,
                              .is_cancelled = is_cancelled,
                              .ud = &w->parts[0]};
    struct fetch_reply reply;
    int rc = fetch(&r, &reply, NULL);
    fetch_reply_fini(&reply);
    return rc != CHIMERE_EUNSUPPORTED;
}

/* ---- the whole download ---- */

static int check(struct work *w, struct err *e) {
    if (!w->d->sha256) return 0;
    struct digest *md = digest_new();
    unsigned char *block = mem_alloc(CHECK_BYTES), digest[DIGEST_BYTES];
    int rc = md && block ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (uint64_t at = 0; !rc && at < w->d->length;) {
        ssize_t n = pread(w->fd, block, CHECK_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) rc = err_set(e, CHIMERE_EIO, "%s: cannot read back", w->part_path);
        else if (!digest_add(md, block, (size_t)n)) rc = CHIMERE_EINTERNAL;
        at += n > 0 ? (uint64_t)n : 0;
        if (!rc && w->d->on_check) w->d->on_check(w->d->ud, at);
        if (!rc && w->d->is_cancelled && w->d->is_cancelled(w->d->ud))
            rc = err_set(e, CHIMERE_ECANCELLED, "%s: cancelled", w->d->path);
    }
    char hex[DIGEST_HEX_BYTES] = "";
    if (!rc && digest_end(md, digest)) digest_hex(digest, hex);
    digest_free(md);
    mem_free(block);
    if (rc || str_eq_nocase(hex, w->d->sha256)) return rc;
    unlink(w->part_path);
    unlink(w->state_path);
    err_set(e, CHIMERE_ECHECKSUM, "%s: expected SHA-256 %s, got %s", w->d->path, w->d->sha256, hex);
    err_hint(e, "the bytes were discarded; try again");
    return CHIMERE_ECHECKSUM;
}

static int open_part(struct work *w, struct err *e) {
    int a = snprintf(w->part_path, sizeof w->part_path, "%s.part", w->d->path);
    int b = snprintf(w->state_path, sizeof w->state_path, "%s.state", w->d->path);
    if (a < 0 || b < 0 || (size_t)b >= sizeof w->state_path)
        return err_set(e, CHIMERE_ELIMIT, "%.100s...: the path is too long", w->d->path);
    w->fd = open(w->part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->fd < 0)
        return err_set(e, CHIMERE_EIO, "%s: cannot create: %s", w->part_path, strerror(errno));
    if (flock(w->fd, LOCK_EX | LOCK_NB))
        return err_set(e, CHIMERE_EBUSY, "%s: another process is fetching it", w->part_path);
    return 0;
}

static int fetch_parts(struct work *w, struct err *e) {
    if (!load_state(w)) {
        unlink(w->state_path);
        plan_parts(w, w->d->n_part > 0 ? w->d->n_part : 4);
        if (ftruncate(w->fd, 0) || ftruncate(w->fd, (off_t)w->d->length)) {
            fail_errno(w, "make room for the file");
            *e = w->e;
            return w->e.code;
        }
    }
    if (w->n_part > 1 && !has_ranges(w)) plan_parts(w, 1);
    report(w);
    const struct fetch_many m = {.n = w->n_part, .next = next, .done = done, .ud = w};
    int rc = fetch_many(&m, e);
    if (rc && rc != CHIMERE_EMISMATCH) save_state(w);
    return rc;
}

int download_file(const struct download *d, struct err *e) {
    struct work w = {.d = d, .fd = -1};
    struct err own = {0};
    if (!e) e = &own;
    int rc = open_part(&w, e);
    if (!rc && d->length) rc = fetch_parts(&w, e);
    if (!rc) rc = check(&w, e);
    if (!rc && (fchmod(w.fd, 0644) || fsync(w.fd) || rename(w.part_path, d->path)))
        rc = err_set(e, CHIMERE_EIO, "%s: cannot finish: %s", d->path, strerror(errno));
    if (!rc) unlink(w.state_path);
    if (w.fd >= 0) close(w.fd);
    return rc;
}
