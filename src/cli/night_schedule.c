/* night_schedule.c: see night_schedule.h. */
#include "cli/night_schedule.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

enum { MAX_UNIT = 64 << 10, MAX_PATH = 4096 };

/* A word of ExecStart: quoted; systemd expands % and $ in it. */
static void put_word(struct buf *b, const char *word) {
    buf_puts(b, " \"");
    for (; *word; ++word) {
        if (*word == '"' || *word == '\\') buf_putc(b, '\\');
        if (*word == '%' || *word == '$') buf_putc(b, *word);
        buf_putc(b, *word);
    }
    buf_putc(b, '"');
}

static int put_service(struct buf *b, const struct cfg *c, struct err *e) {
    static const char *const passed[] = {"model", "night-dir", "db", "steps", "budget", "device"};
    char program[MAX_PATH], option[32];
    int rc = file_program(program, sizeof program, e);
    if (rc) return rc;
    buf_puts(
        b,
        "[Unit]\nDescription=Chimère learns from the day\n\n[Service]\nType=oneshot\nExecStart=");
    struct buf line;
    buf_init(&line, MAX_UNIT);
    put_word(&line, program);
    buf_puts(&line, " night run --quiet");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; ++i) {
        if (!cfg_str(c, passed[i])) continue;
        snprintf(option, sizeof option, " --%s", passed[i]);
        buf_puts(&line, option);
        put_word(&line, cfg_str(c, passed[i]));
    }
    if (!line.failed) buf_puts(b, line.p + 1);
    bool failed = line.failed;
    buf_fini(&line);
    buf_puts(b,
             "\nNice=19\nCPUSchedulingPolicy=idle\nIOSchedulingClass=idle\nNoNewPrivileges=yes\n");
    return failed || b->failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

static int read_time(const char *at, struct err *e) {
    int hour, minute;
    char rest;
    if (strlen(at) == 5 && sscanf(at, "%2d:%2d%c", &hour, &minute, &rest) == 2 && hour >= 0 &&
        hour < 24 && minute >= 0 && minute < 60)
        return 0;
    return err_set(e, CHIMERE_EINVAL, "at: expected a time from 00:00 to 23:59, got %s", at);
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

int night_schedule(const struct cfg *c, struct err *e) {
    const char *at = cfg_str(c, "at");
    bool install = cfg_bool(c, "install");
    struct buf service, timer;
    int rc = read_time(at, e);
    buf_init(&service, MAX_UNIT);
    buf_init(&timer, MAX_UNIT);
    if (!rc) rc = put_service(&service, c, e);
    buf_printf(&timer,
               "[Unit]\nDescription=Chimère learns from the day, every "
               "night\n\n[Timer]\nOnCalendar=*-*-* %s:00\n"
               "Persistent=true\n\n[Install]\nWantedBy=timers.target\n",
               at);
    if (!rc && timer.failed) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = give("chimere-night.service", &service, install, e);
    if (!rc) rc = give("chimere-night.timer", &timer, install, e);
    if (!rc)
        puts(install ? "start it: systemctl --user daemon-reload && systemctl --user enable --now "
                       "chimere-night.timer"
                     : "# --install writes both to the user's systemd folder");
    buf_fini(&service);
    buf_fini(&timer);
    return rc;
}
