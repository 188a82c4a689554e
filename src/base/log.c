#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int max_level = LOG_WARN;
static _Atomic bool as_json;
static struct {
    char what[64];
    uint64_t total;
    bool is_bytes, active;
    int64_t start_ns, shown_ns;
    void (*show)(const char *what, uint64_t done, uint64_t total); /* NULL: the bar is drawn */
} bar;

void log_set_level(enum log_level level) { max_level = level; }
bool log_enabled(enum log_level level) { return (int)level <= max_level; }

void log_set_json(bool on) { as_json = on; }

static const char *const names[] = {"error", "warning", "info", "debug"};

/* Writes text as a JSON string; invalid UTF-8 bytes become '?'. */
static void put_json(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') fprintf(f, "\\%c", *p);
        else fputc(*p < 0x20 || *p >= 0x7f ? '?' : *p, f);
    }
    fputc('"', f);
}

static void put_line(enum log_level level, char *text, const char *members) {
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20) *p = ' ';
    pthread_mutex_lock(&lock);
    if (as_json) {
        struct timespec now;
        struct tm tm;
        char at[32] = "";
        clock_gettime(CLOCK_REALTIME, &now);
        if (gmtime_r(&now.tv_sec, &tm)) strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", &tm);
        fprintf(stderr, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":", at,
                now.tv_nsec / 1000000, names[level]);
        put_json(stderr, text);
        fprintf(stderr, "%s%s}\n", members ? "," : "", members ? members : "");
    } else {
        fprintf(stderr, "chimere: %s: %s\n", names[level], text);
    }
    pthread_mutex_unlock(&lock);
}

void log_msg(enum log_level level, const char *fmt, ...) {
    if (!log_enabled(level)) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    put_line(level, line, NULL);
}

void log_event(enum log_level level, const char *members, const char *fmt, ...) {
    if (!log_enabled(level)) return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    put_line(level, line, members);
}

void progress_begin(const char *what, uint64_t total, bool is_bytes) {
    snprintf(bar.what, sizeof bar.what, "%s", what);
    bar.total = total;
    bar.is_bytes = is_bytes;
    bar.start_ns = clock_ns();
    bar.shown_ns = 0;
    bar.active = bar.show || isatty(STDERR_FILENO);
}

void progress_to(void (*show)(const char *what, uint64_t done, uint64_t total)) { bar.show = show; }

static void draw(uint64_t done) {
    char have[16], all[16], cells[31];
    if (bar.show) {
        bar.show(bar.what, done, bar.total);
        return;
    }
    if (bar.is_bytes) {
        str_bytes(have, done);
        str_bytes(all, bar.total);
    } else {
        snprintf(have, sizeof have, "%llu", (unsigned long long)done);
        snprintf(all, sizeof all, "%llu", (unsigned long long)bar.total);
    }
    if (!bar.total) {
        fprintf(stderr, "\r%s %s \033[K", bar.what, have);
        return;
    }
    double f = done >= bar.total ? 1.0 : (double)done / (double)bar.total;
    int full = (int)(f * 30);
    memset(cells, '.', 30);
    memset(cells, '#', (size_t)full);
    cells[30] = 0;
    double s = (double)(clock_ns() - bar.start_ns) * 1e-9;
    fprintf(stderr, "\r%s [%s] %s of %s, %.0f s left \033[K", bar.what, cells, have, all,
            f > 0 ? s * (1 - f) / f : 0.0);
}

void progress_step(uint64_t done) {
    if (!bar.active) return;
    int64_t now = clock_ns();
    if (now - bar.shown_ns < 100000000) return;
    bar.shown_ns = now;
    draw(done);
}

void progress_end(void) {
    if (!bar.active) return;
    draw(bar.total);
    if (!bar.show) fputc('\n', stderr);
    bar.active = false;
}
