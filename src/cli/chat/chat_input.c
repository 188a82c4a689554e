#include "cli/chat/chat_input.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/config.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"

enum { MAX_MESSAGE = 16 << 20, MAX_PASTE = 1 << 20, N_HISTORY = 1000 };

struct chat_input {
    const char *const *commands; /* borrowed from the caller */
    EditLine *el;                /* owned; NULL: plain lines from standard input */
    History *history;            /* owned */
    char history_path[4096];     /* "": kept in memory only */
    bool color, more;            /* more: inside a message of several lines */
    bool interrupted;
    struct buf line; /* a line read from a pipe */
};

static struct chat_input *input_of(EditLine *el) {
    void *data = NULL;
    el_get(el, EL_CLIENTDATA, &data);
    return data;
}

static char *prompt(EditLine *el) {
    /* \1 encloses characters that are not visible on the screen */
    static char plain[] = ">>> ", colored[] = "\1\033[1;32m\1>>> \1\033[0m\1", more[] = "... ";
    const struct chat_input *in = input_of(el);
    return in->more ? more : in->color ? colored : plain;
}

/* ---- keys ---- */

static unsigned char key_interrupt(EditLine *el, int ch) {
    (void)ch;
    input_of(el)->interrupted = true;
    el_cursor(el, INT_MAX / 2); /* so that the text typed so far remains readable above */
    el_set(el, EL_REFRESH);
    return CC_NEWLINE;
}

static unsigned char key_suspend(EditLine *el, int ch) {
    (void)el, (void)ch;
    raise(SIGTSTP); /* the library's handler first restores the terminal */
    return CC_REDISPLAY;
}

static unsigned char key_new_line(EditLine *el, int ch) {
    (void)ch;
    return el_insertstr(el, "\n") ? CC_ERROR : CC_REFRESH;
}

/* After ESC [ 200 ~, everything up to ESC [ 201 ~ is text, including newlines. */
static unsigned char key_paste(EditLine *el, int ch) {
    (void)ch;
    static const wchar_t end[] = L"\033[201~";
    enum { N_END = sizeof end / sizeof *end - 1 };
    size_t n = 0, matched = 0;
    wchar_t *text = mem_alloc_array(MAX_PASTE + 1, sizeof *text), c;
    while (matched < N_END && el_wgetc(el, &c) == 1) {
        if (c == L'\r') c = L'\n';
        matched = c == end[matched] ? matched + 1 : c == end[0];
        if (text && n < MAX_PASTE) text[n++] = c;
    }
    if (!text) return CC_ERROR;
    n -= matched < n ? matched : n;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] >= 32 || text[i] == L'\n' || text[i] == L'\t') text[kept++] = text[i];
    text[kept] = 0;
    int rc = kept ? el_winsertstr(el, text) : 0;
    mem_free(text);
    return rc ? CC_ERROR : CC_REFRESH;
}

/* Completes the name of a command, and file names after it. */
static unsigned char key_complete(EditLine *el, int ch) {
    const struct chat_input *in = input_of(el);
    const LineInfo *l = el_line(el);
    size_t n = (size_t)(l->cursor - l->buffer);
    if (!n || l->buffer[0] != '/') return el_insertstr(el, "\t") ? CC_ERROR : CC_REFRESH;
    if (memchr(l->buffer, ' ', n)) return _el_fn_complete(el, ch);
    const char *found = NULL;
    size_t shared = 0;
    for (const char *const *c = in->commands; *c; c++) {
        if (strncmp(*c, l->buffer, n) != 0) continue;
        size_t same = found ? 0 : strlen(*c);
        while (found && same < shared && (*c)[same] == found[same]) same++;
        if (!found) found = *c;
        shared = same;
    }
    if (!found || shared <= n) return CC_ERROR;
    char rest[32];
    snprintf(rest, sizeof rest, "%.*s%s", (int)(shared - n), found + n, found[shared] ? "" : " ");
    return el_insertstr(el, rest) ? CC_ERROR : CC_REFRESH;
}

static const struct {
    const char *name, *help, *keys[2];
    unsigned char (*run)(EditLine *el, int ch);
} keys[] = {
    {"chat-interrupt", "drop the line", {"^C", NULL}, key_interrupt},
    {"chat-suspend", "stop the program", {"^Z", NULL}, key_suspend},
    {"chat-new-line", "insert a newline", {"\\e\\r", "\\e\\n"}, key_new_line},
    {"chat-paste", "take pasted text", {"\\e[200~", NULL}, key_paste},
    {"chat-complete", "complete a command", {"^I", NULL}, key_complete},
};

static int open_editor(struct chat_input *in, bool keep_history, struct err *e) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    in->el = el_init("chimere", stdin, stdout, stderr);
    in->history = history_init();
    if (!in->el || !in->history) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    el_set(in->el, EL_CLIENTDATA, in);
    el_set(in->el, EL_PROMPT_ESC, prompt, '\1');
    el_set(in->el, EL_EDITOR, "emacs");
    el_set(in->el, EL_SIGNAL, 1);
    /* Ctrl-C is handled as a key while a line is edited; as a signal it would be lost, because the read is
     * restarted. */
    el_set(in->el, EL_SETTY, "-d", "-isig", NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        el_set(in->el, EL_ADDFN, keys[i].name, keys[i].help, keys[i].run);
        for (int k = 0; k < 2 && keys[i].keys[k]; k++)
            el_set(in->el, EL_BIND, keys[i].keys[k], keys[i].name, NULL);
    }
    el_set(in->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    HistEvent ev;
    history(in->history, &ev, H_SETSIZE, N_HISTORY);
    history(in->history, &ev, H_SETUNIQUE, 1);
    el_set(in->el, EL_HIST, history, in->history);
    el_source(in->el, NULL); /* the user's ~/.editrc is read last, so that it takes precedence */
    if (keep_history &&
        file_user_data("chat_history", in->history_path, sizeof in->history_path, NULL) == 0)
        history(in->history, &ev, H_LOAD, in->history_path); /* on the first run there is no file */
    else in->history_path[0] = 0;
    return 0;
}

int chat_input_open(struct chat_input **out, const struct chat_input_params *p, struct err *e) {
    *out = NULL;
    struct chat_input *in = mem_zalloc(sizeof *in);
    if (!in) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    in->commands = p->commands;
    buf_init(&in->line, MAX_MESSAGE);
    in->color = cfg_wants_color(stdout);
    int rc = 0;
    if (os_is_terminal(stdin) && os_is_terminal(stdout)) rc = open_editor(in, p->keep_history, e);
    if (rc) chat_input_close(in);
    else *out = in;
    return rc;
}

void chat_input_close(struct chat_input *in) {
    if (!in) return;
    if (in->el) el_end(in->el);
    if (in->history) history_end(in->history);
    buf_fini(&in->line);
    mem_free(in);
}

bool chat_input_is_terminal(const struct chat_input *in) { return in->el != NULL; }

/* Reads one line without its newline. Returns 1, 0 at the end, or CHIMERE_E*. */
static int read_line(struct chat_input *in, const char **line, size_t *n, struct err *e) {
    if (in->el) {
        int count = 0;
        fputs("\033[?2004h", stdout); /* bracketed paste */
        fflush(stdout);
        in->interrupted = false;
        *line = el_gets(in->el, &count);
        fputs(in->interrupted ? "\033[?2004l^C\n" : "\033[?2004l", stdout);
        fflush(stdout);
        if (in->interrupted) return CHIMERE_ECANCELLED;
        if (!*line || count <= 0) return 0;
        *n = (size_t)count;
    } else {
        buf_clear(&in->line);
        int c;
        while ((c = getc(stdin)) != EOF && c != '\n') buf_putc(&in->line, (char)c);
        if (ferror(stdin)) return err_set(e, CHIMERE_EIO, "standard input: %s", strerror(errno));
        if (in->line.failed)
            return err_set(e, in->line.failed, "message: expected at most %d bytes", MAX_MESSAGE);
        if (c == EOF && !in->line.n) return 0;
        *line = in->line.n ? in->line.p : "";
        *n = in->line.n;
    }
    if (*n && (*line)[*n - 1] == '\n') --*n;
    if (*n && (*line)[*n - 1] == '\r') --*n;
    return 1;
}

static bool ends_block(const char *line, size_t n) {
    return n >= 3 && memcmp(line + n - 3, "\"\"\"", 3) == 0;
}

/* Appends lines to b up to the end of the message. Returns 1, 0 at the end of the input, or CHIMERE_E*. */
static int read_message(struct chat_input *in, struct buf *b, struct err *e) {
    bool block = false;
    for (int n_line = 0;; n_line++) {
        const char *line = NULL;
        size_t n = 0;
        in->more = n_line > 0;
        int rc = read_line(in, &line, &n, e);
        if (rc < 0) return rc;
        if (rc == 0) return n_line > 0;
        if (n_line) buf_putc(b, '\n');
        if (!n_line && n >= 3 && memcmp(line, "\"\"\"", 3) == 0) {
            block = true;
            line += 3;
            n -= 3;
        }
        bool last = block ? ends_block(line, n) : !(n && line[n - 1] == '\\');
        size_t mark = !last && !block ? 1 : last && block ? 3 : 0;
        buf_put(b, line, n - mark);
        if (b->failed)
            return err_set(e, b->failed, "message: expected at most %d bytes", MAX_MESSAGE);
        if (last) return 1;
    }
}

static void remember(struct chat_input *in, const char *text) {
    HistEvent ev;
    if (!in->history || !*text) return;
    history(in->history, &ev, H_ENTER, text);
    if (in->history_path[0]) history(in->history, &ev, H_SAVE, in->history_path);
}

int chat_input_read(struct chat_input *in, char **text, struct err *e) {
    struct buf b;
    *text = NULL;
    buf_init(&b, MAX_MESSAGE);
    int rc = read_message(in, &b, e);
    in->more = false;
    if (rc > 0) {
        *text = buf_take(&b);
        if (!*text) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        remember(in, *text);
    }
    buf_fini(&b);
    return rc;
}

void chat_input_editor(char *out, size_t out_size) {
    snprintf(out, out_size, "%d.%d", LIBEDIT_MAJOR, LIBEDIT_MINOR);
}
