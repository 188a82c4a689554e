#include "cli/chat/chat_session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "cli/term.h"
#include "text/chat/chat.h"

enum { MAX_FILE_BYTES = 64 << 20 };

/* ---- Ctrl-C ---- */

static int stop_fd_of_handler = -1;
static void on_interrupt(int sig) {
    (void)sig;
    int kept = errno;
    if (write(stop_fd_of_handler, "", 1) < 0) errno = 0; /* pipe full: a stop is already pending */
    errno = kept;
}

/* On a terminal the handler remains for the whole chat, because a Ctrl-C just before or after an answer must not
 * end the program. */
static void handle_interrupts(bool on) {
    struct sigaction act = {.sa_handler = on ? on_interrupt : SIG_DFL};
    sigaction(SIGINT, &act, NULL);
}

int chat_session_init(struct chat_session *s, struct chat_backend *b, struct cfg *c,
                      struct err *e) {
    *s = (struct chat_session){.backend = b, .c = c, .messages = json_array(), .stop = {-1, -1}};
    int rc = s->messages ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && pipe2(s->stop, O_CLOEXEC | O_NONBLOCK))
        rc = err_set(e, CHIMERE_EIO, "cannot make a pipe: %s", strerror(errno));
    stop_fd_of_handler = s->stop[1];
    s->think = cfg_bool(c, "think");
    s->terminal = os_is_terminal(stdout);
    s->color = cfg_wants_color(stdout);
    if (!rc && s->terminal) handle_interrupts(true);
    if (!rc && cfg_str(c, "system")) rc = chat_session_set_system(s, cfg_str(c, "system"), e);
    if (rc) chat_session_fini(s);
    return rc;
}

void chat_session_fini(struct chat_session *s) {
    handle_interrupts(false);
    json_decref(s->messages);
    mem_free(s->system);
    for (int i = 0; i < 2; i++)
        if (s->stop[i] >= 0) close(s->stop[i]);
    if (s->backend) s->backend->close(s->backend);
    *s = (struct chat_session){.stop = {-1, -1}};
}

void chat_session_reset(struct chat_session *s) { json_array_clear(s->messages); }

int chat_session_set_system(struct chat_session *s, const char *text, struct err *e) {
    char *copy = *text ? mem_strdup(text) : NULL;
    if (*text && !copy) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(s->system);
    s->system = copy;
    return 0;
}

static json_t *message_of(const char *role, const char *text) {
    return json_pack("{s:s, s:s}", "role", role, "content", text);
}

/* Returns all messages, beginning with the system message; a new reference. */
static json_t *whole(const struct chat_session *s, struct err *e) {
    json_t *all = json_array(), *first = s->system ? message_of("system", s->system) : NULL;
    bool ok = all && (!s->system || (first && json_array_append_new(all, first) == 0)) &&
              json_array_extend(all, s->messages) == 0;
    if (ok) return all;
    json_decref(all);
    err_set(e, CHIMERE_EINVAL, "message: expected valid UTF-8");
    return NULL;
}

/* ---- an answer on the screen ---- */

struct show {
    const struct chat_session *s;
    bool thinking, began; /* began: the answer's first character was shown */
};

static void show_border(struct show *w, bool thought) {
    const char *dim = w->s->color ? "\033[2m" : "", *plain = w->s->color ? "\033[0m" : "";
    if (thought) printf("%sThinking...\n", dim);
    else printf("\n...done thinking.%s\n\n", plain);
    w->thinking = thought;
}

static void on_text(void *ud, bool is_thought, const char *text, size_t n) {
    struct show *w = ud;
    if (is_thought && !w->s->terminal) return;
    if (w->thinking != is_thought) show_border(w, is_thought);
    /* templates put newlines between thinking and answer; skip them */
    if (!is_thought && !w->began) {
        while (n && *text == '\n') text++, n--;
        w->began = n > 0;
    }
    term_write(stdout, text, n);
    fflush(stdout);
}

/* Requests an answer to the current messages and appends it. */
static int request(struct chat_session *s, struct err *e) {
    json_t *all = whole(s, e);
    if (!all) return CHIMERE_EINVAL;
    char byte;
    while (read(s->stop[0], &byte, 1) == 1) {
    } /* discard an interrupt that came too late for the previous answer */
    handle_interrupts(true);
    struct show show = {.s = s};
    const struct chat_ask q = {.messages = all,
                               .c = s->c,
                               .think = s->think,
                               .stop_fd = s->stop[0],
                               .on_text = on_text,
                               .ud = &show};
    struct chat_reply r;
    int rc = s->backend->request(s->backend, &q, &r, e);
    if (!s->terminal) handle_interrupts(false);
    json_decref(all);
    if (show.thinking) show_border(&show, false);
    if (rc) return rc;
    putchar('\n');
    const char *dim = s->color ? "\033[2m" : "", *plain = s->color ? "\033[0m" : "";
    if (s->terminal && r.end == CHAT_END_STOPPED) printf("%s(stopped)%s\n", dim, plain);
    if (s->terminal && r.end == CHAT_END_LENGTH)
        printf("%s(cut off: the context or --n-predict is used up)%s\n", dim, plain);
    fflush(stdout);
    if (json_array_append_new(s->messages, r.message))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r.message = NULL;
    s->last = r;
    return 0;
}

int chat_session_say(struct chat_session *s, const char *text, struct err *e) {
    json_t *m = message_of("user", text);
    if (!m) return err_set(e, CHIMERE_EINVAL, "message: expected valid UTF-8");
    if (json_array_append_new(s->messages, m)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = request(s, e);
    if (rc) chat_session_undo(s, true);
    return rc;
}

static bool is_user(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "user") == 0;
}

bool chat_session_undo(struct chat_session *s, bool with_message) {
    size_t n = json_array_size(s->messages);
    while (n && !is_user(json_array_get(s->messages, n - 1))) n--;
    if (!n) return false;
    if (with_message) n--;
    while (json_array_size(s->messages) > n) json_array_remove(s->messages, n);
    return true;
}

int chat_session_again(struct chat_session *s, struct err *e) {
    if (!chat_session_undo(s, false))
        return err_set(e, CHIMERE_EINVAL, "there is no message to answer yet");
    return request(s, e);
}

/* ---- files ---- */

int chat_session_save(const struct chat_session *s, const char *path, struct err *e) {
    json_t *all = whole(s, e);
    if (!all) return CHIMERE_EINVAL;
    json_t *o = json_pack("{s:o}", "messages", all);
    struct file_writer w;
    int rc = o ? file_writer_open(&w, path, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && (json_dumpf(o, w.f, JSON_INDENT(2)) || fputc('\n', w.f) == EOF)) {
        file_writer_abort(&w);
        rc = err_set(e, CHIMERE_EIO, "%s: cannot write", path);
    } else if (!rc) {
        rc = file_writer_commit(&w, e);
    }
    json_decref(o);
    return rc;
}

static int check_messages(const json_t *list, const char *path, struct err *e) {
    if (!json_is_array(list))
        return err_set(e, CHIMERE_EFORMAT, "%s: expected an object with a list 'messages'", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        if (!json_is_string(json_object_get(m, "role")))
            return err_set(e, CHIMERE_EFORMAT, "%s: message %zu has no role", path, i);
        const json_t *content = json_object_get(m, "content");
        if (content && !json_is_string(content) && !json_is_null(content) &&
            !json_is_array(content))
            return err_set(e, CHIMERE_EFORMAT, "%s: content of message %zu: expected text", path,
                           i);
    }
    return 0;
}

int chat_session_load(struct chat_session *s, const char *path, struct err *e) {
    char *text;
    size_t n;
    int rc = file_read(path, MAX_FILE_BYTES, &text, &n, e);
    if (rc) return rc;
    json_t *o = chat_json_object(text, n, path, e);
    mem_free(text);
    if (!o) return CHIMERE_EFORMAT;
    json_t *list = json_object_get(o, "messages");
    rc = check_messages(list, path, e);
    if (!rc) {
        const json_t *first = json_array_get(list, 0);
        const char *role = json_string_value(json_object_get(first, "role")),
                   *system = json_string_value(json_object_get(first, "content"));
        bool has = role && strcmp(role, "system") == 0 && system;
        rc = chat_session_set_system(s, has ? system : "", e);
        if (!rc && has) json_array_remove(list, 0);
    }
    if (!rc) {
        json_decref(s->messages);
        s->messages = json_incref(list);
    }
    json_decref(o);
    return rc;
}

void chat_session_show(const struct chat_session *s) {
    const char *bold = s->color ? "\033[1m" : "", *plain = s->color ? "\033[0m" : "";
    if (s->system) {
        printf("%ssystem:%s ", bold, plain);
        term_write(stdout, s->system, strlen(s->system));
        putchar('\n');
    }
    size_t i;
    json_t *m;
    json_array_foreach(s->messages, i, m) {
        const json_t *text = json_object_get(m, "content");
        printf("%s%s:%s ", bold, json_string_value(json_object_get(m, "role")), plain);
        if (json_is_string(text))
            term_write(stdout, json_string_value(text), json_string_length(text));
        putchar('\n');
    }
}
