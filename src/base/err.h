/* err.h: error codes, and the error record that is passed up to the user.
 *
 * Functions return 0 or a negative CHIMERE_E* code. For errors that a user can fix, they also fill the caller's `struct
 * err` with a sentence (what, which, expected, got) and a hint. The innermost function writes the sentence; callers may
 * add context with err_prefix(). A NULL `struct err *` is allowed everywhere and drops the text. No allocation, no
 * locks; any thread. */
#ifndef CHIMERE_BASE_ERR_H
#define CHIMERE_BASE_ERR_H

#define CHIMERE_ERRORS(X)                                                                          \
    X(EINVAL, -1, "invalid argument")                                                              \
    X(ENOMEM, -2, "out of memory")                                                                 \
    X(EIO, -3, "input/output error")                                                               \
    X(ENOENT, -4, "not found")                                                                     \
    X(EFORMAT, -5, "malformed data")                                                               \
    X(EUNSUPPORTED, -6, "not supported")                                                           \
    X(ELIMIT, -7, "limit exceeded")                                                                \
    X(ECHECKSUM, -8, "checksum mismatch")                                                          \
    X(EMISMATCH, -9, "does not match")                                                             \
    X(ECANCELLED, -10, "cancelled")                                                                \
    X(EBUSY, -11, "busy")                                                                          \
    X(EDEVICE, -12, "device failure")                                                              \
    X(ENUMERIC, -13, "not a finite number")                                                        \
    X(EREFUSED, -14, "refused")                                                                    \
    X(ETIMEOUT, -15, "timed out")                                                                  \
    X(EINTERNAL, -16, "internal error")

#ifndef CHIMERE_H /* the installed header defines them too */
enum chimere_code {
    CHIMERE_OK = 0,
#define X(name, value, text) CHIMERE_##name = value,
    CHIMERE_ERRORS(X)
#undef X
};
#endif

struct err {
    int code;       /* 0 or CHIMERE_E* */
    char text[480]; /* one sentence without newline; valid UTF-8, invalid bytes replaced by '?' */
    char hint[160]; /* what to do next; may be empty */
};

/* Fills e (if not NULL) and returns code, so that callers can write `return err_set(...)`. Control bytes and invalid
 * UTF-8 in the formatted text are replaced by '?'. Clears the hint. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* it cannot see err.c: without this it mistakes failures for success */
#define err_set(e, code, ...) (err_set(e, code, __VA_ARGS__), (code))
#endif

/* Inserts "fmt: " before the current text. */
void err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Short English text of a code; "unknown error" for other numbers. Static storage. */
const char *err_name(int code);

#endif
