#include "learn/schedule.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/str.h"
#include "learn/json_file.h"
#include "learn/step/night_step.h"

enum { MAX_FILE_BYTES = 64 << 10, HOUR_S = 3600, MAX_HOURS = 168 };

static const char days[7][4] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

/* ---- times as text ---- */

static bool parse_clock(const char *s, int *minute) {
    for (int i = 0; i < 5; i++)
        if (i == 2 ? s[i] != ':' : s[i] < '0' || s[i] > '9') return false;
    int hour = (s[0] - '0') * 10 + s[1] - '0', m = (s[3] - '0') * 10 + s[4] - '0';
    *minute = hour * 60 + m;
    return !s[5] && hour < 24 && m < 60;
}

int schedule_parse(const char *text, struct schedule_time *out, struct err *e) {
    int64_t hours;
    *out = (struct schedule_time){.kind = SCHEDULE_OFF};
    if (!strcmp(text, "off")) return 0;
    if (parse_clock(text, &out->minute)) {
        out->kind = SCHEDULE_DAILY;
        return 0;
    }
    for (int d = 0; d < 7; d++)
        if (!strncmp(text, days[d], 3) && text[3] == ' ' && parse_clock(text + 4, &out->minute)) {
            out->kind = SCHEDULE_WEEKLY;
            out->day = d;
            return 0;
        }
    size_t digits = strspn(text, "0123456789");
    char number[8];
    if (digits < 4 && !strcmp(text + digits, "h")) {
        snprintf(number, sizeof number, "%.*s", (int)digits, text);
        if (str_to_i64(number, 1, MAX_HOURS, &hours)) {
            out->kind = SCHEDULE_EVERY;
            out->every_h = (int)hours;
            return 0;
        }
    }
    return err_set(e, CHIMERE_EINVAL,
                   "schedule: expected a time such as 03:00, \"mon 02:00\", 6h or off, got %.40s",
                   text);
}

void schedule_text(const struct schedule_time *t, char out[SCHEDULE_MAX_TEXT]) {
    int hour = t->minute / 60 % 24, minute = t->minute % 60;
    switch (t->kind) {
    case SCHEDULE_OFF: snprintf(out, SCHEDULE_MAX_TEXT, "off"); break;
    case SCHEDULE_DAILY: snprintf(out, SCHEDULE_MAX_TEXT, "%02d:%02d", hour, minute); break;
    case SCHEDULE_WEEKLY:
        snprintf(out, SCHEDULE_MAX_TEXT, "%s %02d:%02d", days[t->day % 7], hour, minute);
        break;
    case SCHEDULE_EVERY: snprintf(out, SCHEDULE_MAX_TEXT, "%dh", t->every_h); break;
    }
}

bool schedule_calendar(const struct schedule_time *t, char out[48]) {
    static const char *const names[7] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    int hour = t->minute / 60 % 24, minute = t->minute % 60;
    switch (t->kind) {
    case SCHEDULE_OFF: break;
    case SCHEDULE_DAILY: snprintf(out, 48, "*-*-* %02d:%02d:00", hour, minute); break;
    case SCHEDULE_WEEKLY:
        snprintf(out, 48, "%s *-*-* %02d:%02d:00", names[t->day % 7], hour, minute);
        break;
    case SCHEDULE_EVERY:
        if (t->every_h < 24) snprintf(out, 48, "*-*-* 00/%d:00:00", t->every_h);
        else snprintf(out, 48, "*-*-1/%d 00:00:00", t->every_h / 24);
        break;
    }
    return t->kind != SCHEDULE_OFF;
}

/* ---- files ---- */

/* Reads a JSON object of the folder into a new reference; an empty object if there is no file. */
static int read_object(const char *dir, const char *name, json_t **out, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (file_exists(path)) return json_file_read(out, path, MAX_FILE_BYTES, e);
    *out = json_object();
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int write_object(const char *dir, const char *name, json_t *o, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int rc = file_mkdirs(dir, e);
    if (!rc) return json_file_write(path, o, e);
    json_decref(o);
    return rc;
}

int schedule_load(struct schedule *s, const char *dir, struct err *e) {
    json_t *times = NULL, *ran = NULL;
    *s = (struct schedule){.n = 0};
    int rc = read_object(dir, "schedule.json", &times, e);
    /* unreadable: as if no step ever ran */
    if (!rc && read_object(dir, "ran.json", &ran, NULL)) ran = json_object();
    for (size_t i = 0; !rc && night_steps[i] && s->n < SCHEDULE_MAX; i++) {
        struct schedule_row *r = &s->rows[s->n++];
        const char *text = json_string_value(json_object_get(times, night_steps[i]->name));
        r->step = night_steps[i]->name;
        r->ran_s = json_integer_value(json_object_get(ran, r->step));
        rc = schedule_parse(text ? text : night_steps[i]->time, &r->time, e);
    }
    json_decref(times);
    json_decref(ran);
    return rc;
}

int schedule_set(struct schedule *s, const char *step, const struct schedule_time *t,
                 struct err *e) {
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->rows[i].step, step)) {
            s->rows[i].time = *t;
            return 0;
        }
    return err_set(e, CHIMERE_ENOENT, "schedule: there is no step %.40s", step);
}

int schedule_save(const struct schedule *s, const char *dir, struct err *e) {
    json_t *o = json_object();
    for (size_t i = 0; o && i < s->n; i++) {
        char text[SCHEDULE_MAX_TEXT];
        schedule_text(&s->rows[i].time, text);
        json_object_set_new(o, s->rows[i].step, json_string(text));
    }
    return write_object(dir, "schedule.json", o, e);
}

int schedule_save_ran(const struct schedule *s, const char *dir, struct err *e) {
    json_t *o = json_object();
    for (size_t i = 0; o && i < s->n; i++)
        if (s->rows[i].ran_s)
            json_object_set_new(o, s->rows[i].step, json_integer(s->rows[i].ran_s));
    return write_object(dir, "ran.json", o, e);
}

/* ---- time ---- */

/* Returns the time of a row on the day `offset` days from now. For WEEKLY rows: in the current week. */
static int64_t time_on(const struct schedule_time *t, int64_t now_s, int offset) {
    time_t now = (time_t)now_s;
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_mday += offset + (t->kind == SCHEDULE_WEEKLY ? t->day - tm.tm_wday : 0);
    tm.tm_hour = t->minute / 60;
    tm.tm_min = t->minute % 60;
    tm.tm_sec = 0;
    tm.tm_isdst = -1;
    return (int64_t)mktime(&tm);
}

/* Finds the last time of a DAILY or WEEKLY row up to now, and the first one after now. */
static void times_around(const struct schedule_time *t, int64_t now_s, int64_t *last,
                         int64_t *next) {
    int step = t->kind == SCHEDULE_WEEKLY ? 7 : 1;
    *last = time_on(t, now_s, 0);
    *next = time_on(t, now_s, step);
    if (*last <= now_s) return;
    *next = *last;
    *last = time_on(t, now_s, -step);
}

bool schedule_is_due(const struct schedule_row *r, int64_t now_s) {
    int64_t last, next;
    if (r->time.kind == SCHEDULE_OFF || !r->ran_s || r->ran_s > now_s) return false;
    if (r->time.kind == SCHEDULE_EVERY)
        return now_s - r->ran_s >= (int64_t)r->time.every_h * HOUR_S;
    times_around(&r->time, now_s, &last, &next);
    return r->ran_s < last;
}

int64_t schedule_next(const struct schedule_row *r, int64_t now_s) {
    int64_t last, next;
    if (r->time.kind == SCHEDULE_OFF) return 0;
    if (schedule_is_due(r, now_s)) return now_s;
    if (r->time.kind == SCHEDULE_EVERY) {
        bool ran = r->ran_s && r->ran_s <= now_s;
        return (ran ? r->ran_s : now_s) + (int64_t)r->time.every_h * HOUR_S;
    }
    times_around(&r->time, now_s, &last, &next);
    return next;
}

void schedule_settle(struct schedule *s, int64_t now_s, bool *changed) {
    *changed = false;
    for (size_t i = 0; i < s->n; i++) {
        struct schedule_row *r = &s->rows[i];
        if (r->ran_s > 0 && r->ran_s <= now_s) continue;
        r->ran_s = now_s;
        *changed = true;
    }
}
