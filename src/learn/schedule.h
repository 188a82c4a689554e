/* schedule.h: when each step of a night is due.
 *
 * Two files in the folder of the nights: schedule.json has the times that the owner set, {"lora": "03:00"};
 * ran.json has the time at which each step last ran, {"lora": seconds since 1970}. A time is "HH:MM" (daily), "mon
 * HH:MM" (weekly), "6h" (every six hours) or "off". If a step missed its time once or more because the program was
 * not running, it is due once. A step that never ran waits for its next time. A clock that was set back does not
 * delay a step. Local time; one thread. */
#ifndef CHIMERE_LEARN_SCHEDULE_H
#define CHIMERE_LEARN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SCHEDULE_MAX = 16, SCHEDULE_MAX_TEXT = 16 };

enum schedule_kind { SCHEDULE_OFF, SCHEDULE_DAILY, SCHEDULE_WEEKLY, SCHEDULE_EVERY };
struct schedule_time {
    enum schedule_kind kind;
    int day;     /* WEEKLY: 0 Sunday */
    int minute;  /* DAILY, WEEKLY: minute of the day */
    int every_h; /* EVERY */
};
struct schedule_row {
    const char *step; /* view of a name in night_steps */
    struct schedule_time time;
    int64_t ran_s; /* 0: never */
};
struct schedule {
    struct schedule_row rows[SCHEDULE_MAX];
    size_t n;
};

int schedule_parse(const char *text, struct schedule_time *out, struct err *e);
void schedule_text(const struct schedule_time *t, char out[SCHEDULE_MAX_TEXT]);
/* Writes the time in the format of systemd's OnCalendar=; false: off. */
bool schedule_calendar(const struct schedule_time *t, char out[48]);

/* Loads the steps of night_steps with the times of the folder, or their default times. */
int schedule_load(struct schedule *s, const char *dir, struct err *e);
/* CHIMERE_ENOENT: no such step. */
int schedule_set(struct schedule *s, const char *step, const struct schedule_time *t,
                 struct err *e);
int schedule_save(const struct schedule *s, const char *dir, struct err *e);

bool schedule_is_due(const struct schedule_row *r, int64_t now_s);
int64_t schedule_next(const struct schedule_row *r, int64_t now_s); /* 0: off */
/* Treats steps that never ran, or ran in the future, as if they ran now. *changed: schedule_save_ran is needed. */
void schedule_settle(struct schedule *s, int64_t now_s, bool *changed);
int schedule_save_ran(const struct schedule *s, const char *dir, struct err *e);

#endif
