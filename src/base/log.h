/* log.h: one line per event on standard error, with a level; and a progress bar there.
 *
 * Never logs prompts, answers or secrets; callers pass names, counts and durations. Thread-safe. */
#ifndef CHIMERE_BASE_LOG_H
#define CHIMERE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Both from any thread. */
void log_set_level(enum log_level level); /* default LOG_WARN */
void log_set_json(bool on); /* one JSON object per line: time, level, message, members */
bool log_enabled(enum log_level level);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* members: further members of the JSON object, "\"a\":1,...", for that form of line. */
void log_event(enum log_level level, const char *members, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)

/* A bar on a terminal, nothing elsewhere. total 0: unknown. One at a time. */
void progress_begin(const char *what, uint64_t total, bool is_bytes);
void progress_step(uint64_t done);
void progress_end(void);

#endif
