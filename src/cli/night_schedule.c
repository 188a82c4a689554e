/* night_schedule.c: see night_schedule.h. */
#include "cli/night_schedule.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "learn/nights.h"
#include "learn/schedule.h"

enum { MAX_UNIT = 64 << 10, MAX_PATH = 4096 };

/* Writes a quoted word of ExecStart, in which systemd would expand % and $. */
static void put_word(struct buf *b, const char *word) {
    buf_puts(b, " \"");
    for (; *word; ++word) {
        if (*word == '"' || *word == '\\') buf_putc(b, '\\');
        if (*word == '%' || *word == '$') buf_putc(b, *word);
        buf_putc(b, *word);
    }
    buf_putc(b, '"');
}

/* After downtime, timers may start several services at once; so each service waits for those before it. */
static int put_service(struct buf *b, const struct cfg *c, const struct schedule *s, size_t row,
                       struct err *e) {
    static const char *const passed[] = {"model",  "night-dir", "db",
                                         "budget", "lora-rule", "device"};
    char program[MAX_PATH], option[32];
    int rc = file_program(program, sizeof program, e);
    if (rc) return rc;
    buf_puts(b, "[Unit]\nDescription=Chimère learns from the day\n");
    for (size_t i = 0; i < row; i++)
        buf_printf(b, "After=chimere-night-%s.service\n", s->rows[i].step);
    buf_puts(b, "\n[Service]\nType=oneshot\nExecStart=");
    struct buf line;
    buf_init(&line, MAX_UNIT);
    put_word(&line, program);
    buf_printf(&line, " night run --quiet --steps %s", s->rows[row].step);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; ++i) {
        if (!cfg_str(c, passed[i])) continue;
        snprintf(option, sizeof option, " --%s", passed[i]);
        buf_puts(&line, option);
        put_word(&line, cfg_str(c, passed[i]));
    }
    if (cfg_float(c, "max-energy") > 0)
        buf_printf(&line, " --max-energy %.12g", cfg_float(c, "max-energy"));
    if (!line.failed) buf_puts(b, line.p + 1);
    bool failed = line.failed;
    buf_fini(&line);
    buf_puts(b,
             "\nNice=19\nCPUSchedulingPolicy=idle\nIOSchedulingClass=idle\nNoNewPrivileges=yes\n");
    return failed || b->failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

static int give(const char *name, const struct buf *unit, bool install, struct err *e) {
    char path[MAX_PATH];
    if (!install) {
        printf("# %s\n%s\n", name, unit->p);
        return 0;
    }
    int rc = file_user_unit(name, path, sizeof path, e);
    if (!rc) rc = file_write(path, unit->p, unit->n, e);
    if (!rc) printf("%s\n", path);
    return rc;
}

static int put_units(const struct cfg *c, const struct schedule *s, size_t row,
                     const char *calendar, struct err *e) {
    const struct schedule_row *r = &s->rows[row];
    bool install = cfg_bool(c, "install");
    char name[96];
    struct buf service, timer;
    buf_init(&service, MAX_UNIT);
    buf_init(&timer, MAX_UNIT);
    int rc = put_service(&service, c, s, row, e);
    buf_printf(&timer,
               "[Unit]\nDescription=Chimère learns from the day: %s\n\n[Timer]\nOnCalendar=%s\n"
               "Persistent=true\n\n[Install]\nWantedBy=timers.target\n",
               r->step, calendar);
    if (!rc && timer.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    snprintf(name, sizeof name, "chimere-night-%s.service", r->step);
    if (!rc) rc = give(name, &service, install, e);
    snprintf(name, sizeof name, "chimere-night-%s.timer", r->step);
    if (!rc) rc = give(name, &timer, install, e);
    if (!rc && install) printf("# start it: systemctl --user enable --now %s\n", name);
    buf_fini(&service);
    buf_fini(&timer);
    return rc;
}

static int put_systemd(const struct cfg *c, const struct schedule *s, struct err *e) {
    char calendar[48];
    int rc = 0;
    for (size_t i = 0; !rc && i < s->n; i++)
        if (schedule_calendar(&s->rows[i].time, calendar)) rc = put_units(c, s, i, calendar, e);
    if (!rc)
        puts(cfg_bool(c, "install") ? "# before that: systemctl --user daemon-reload"
                                    : "# --install writes them to the user's systemd folder");
    return rc;
}

static void put_moment(const char *what, int64_t at_s) {
    char text[32];
    time_t at = (time_t)at_s;
    struct tm tm;
    if (!at_s) return;
    localtime_r(&at, &tm);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M", &tm);
    printf("  %s %s", what, text);
}

static void show(const struct schedule *s) {
    int64_t now = (int64_t)time(NULL);
    for (size_t i = 0; i < s->n; i++) {
        char text[SCHEDULE_MAX_TEXT];
        schedule_text(&s->rows[i].time, text);
        printf("%-10s %-10s", s->rows[i].step, text);
        put_moment("ran", s->rows[i].ran_s);
        put_moment("next", schedule_next(&s->rows[i], now));
        putchar('\n');
    }
}

/* Parses STEP=TIME. */
static int set_one(struct schedule *s, const char *arg, struct err *e) {
    char step[64];
    const char *eq = strchr(arg, '=');
    struct schedule_time t;
    if (!eq || (size_t)(eq - arg) >= sizeof step)
        return err_set(e, CHIMERE_EINVAL, "schedule: expected STEP=TIME, got %.60s", arg);
    snprintf(step, sizeof step, "%.*s", (int)(eq - arg), arg);
    int rc = schedule_parse(eq + 1, &t, e);
    return rc ? rc : schedule_set(s, step, &t, e);
}

int night_schedule(const struct cfg *c, struct err *e) {
    struct schedule s;
    struct nights *n;
    char dir[NIGHTS_MAX_PATH];
    int rc = nights_open(&n, cfg_str(c, "night-dir"), NIGHTS_READ, e);
    if (rc) return rc;
    snprintf(dir, sizeof dir, "%s", nights_dir(n));
    nights_close(n);
    rc = schedule_load(&s, dir, e);
    for (int i = 1; !rc && i < cfg_n_pos(c); i++) rc = set_one(&s, cfg_pos(c, i), e);
    if (!rc && cfg_n_pos(c) > 1) rc = schedule_save(&s, dir, e);
    if (rc) return rc;
    if (cfg_bool(c, "systemd") || cfg_bool(c, "install")) return put_systemd(c, &s, e);
    show(&s);
    return 0;
}
