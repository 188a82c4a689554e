/* log.h: writes one line per event to standard error, with a level; and a progress bar.
 *
 * Prompts, answers and secrets are never logged; callers pass names, counts and durations. Thread-safe. */
#ifndef CHIMERE_BASE_LOG_H
#define CHIMERE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Any thread may call both. */
void log_set_level(enum log_level level); /* default LOG_WARN */
void log_set_json(bool on); /* one JSON object per line: time, level, message, members */
bool log_enabled(enum log_level level);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* members: additional members of the JSON object, "\"a\":1,...", used only if JSON is on. */
void log_event(enum log_level level, const char *members, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)

/* Shows a bar if standard error is a terminal, else nothing. total 0: unknown. One bar at a time. */
void progress_begin(const char *what, uint64_t total, bool is_bytes);
void progress_step(uint64_t done);
void progress_end(void);
/* Passes every step to `show` in place of the bar; total as in progress_begin. NULL: the bar again. */
void progress_to(void (*show)(const char *what, uint64_t done, uint64_t total));

#endif
