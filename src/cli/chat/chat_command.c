#include "cli/chat/chat_command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/args/chat_args.h"
#include "cli/term.h"

enum { MAX_READ_BYTES = 16 << 20 };

/* Options that /set may change during the chat: all that are read again for each answer. */
static const struct cfg_opt settable[] = {
    SAMPLING_OPTIONS,
    {"n-predict", 0, CFG_INT, NULL, NULL, 0, 0, NULL, "maximum number of tokens of an answer"},
    {0}};

static int need(const char *arg, const char *what, struct err *e) {
    return *arg ? 0 : err_set(e, CHIMERE_EINVAL, "expected %s", what);
}

static int do_reset(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg, (void)e;
    chat_session_reset(s);
    if (s->terminal) puts("A new conversation.");
    return 0;
}

static int do_regen(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg;
    return chat_session_again(s, e);
}

static int do_undo(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg;
    if (!chat_session_undo(s, true))
        return err_set(e, CHIMERE_EINVAL, "there is no message to remove");
    if (s->terminal) puts("Removed the last message and its answer.");
    return 0;
}

static int do_system(struct chat_session *s, const char *arg, struct err *e) {
    if (*arg) return chat_session_set_system(s, strcmp(arg, "none") == 0 ? "" : arg, e);
    const char *text = s->system ? s->system : "(no system message)";
    term_write(stdout, text, strlen(text));
    putchar('\n');
    return 0;
}

static int do_think(struct chat_session *s, const char *arg, struct err *e) {
    if (*arg && strcmp(arg, "on") != 0 && strcmp(arg, "off") != 0)
        return err_set(e, CHIMERE_EINVAL, "expected on or off, got '%.40s'", arg);
    s->think = *arg ? strcmp(arg, "on") == 0 : !s->think;
    if (s->terminal) printf("Thinking is %s.\n", s->think ? "on" : "off");
    return 0;
}

static int do_set(struct chat_session *s, const char *arg, struct err *e) {
    char name[64];
    size_t n = strcspn(arg, " \t");
    if (!*arg) {
        for (const struct cfg_opt *o = settable; o->name; o++)
            printf("  %-20s %-10s %s\n", o->name,
                   cfg_is_set(s->c, o->name) ? cfg_text(s->c, o->name) : "-", o->help);
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, arg);
    const struct cfg_opt *o = settable;
    while (o->name && strcmp(o->name, name) != 0) o++;
    if (!o->name) {
        err_set(e, CHIMERE_EINVAL, "unknown setting '%s'", name);
        err_hint(e, "/set lists them");
        return CHIMERE_EINVAL;
    }
    arg += n + strspn(arg + n, " \t");
    int rc = need(arg, "a value", e);
    return rc ? rc : cfg_set(s->c, name, arg, e);
}

static int do_show(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg, (void)e;
    chat_session_show(s);
    return 0;
}

static int do_stats(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg;
    const struct chat_reply *r = &s->last;
    if (!r->n_prompt) return err_set(e, CHIMERE_EINVAL, "there is no answer yet");
    double read = r->prefill_ms > 0 ? r->n_prompt / r->prefill_ms * 1000 : 0;
    double wrote = r->decode_ms > 0 ? r->n_generated / r->decode_ms * 1000 : 0;
    printf("prompt: %d tokens, %.0f per second; answer: %d tokens, %.1f per second\n", r->n_prompt,
           read, r->n_generated, wrote);
    return 0;
}

static int do_read(struct chat_session *s, const char *arg, struct err *e) {
    char *text;
    size_t n;
    int rc = need(arg, "a file", e);
    if (!rc) rc = file_read(arg, MAX_READ_BYTES, &text, &n, e);
    if (rc) return rc;
    rc = strlen(text) == n ? chat_session_say(s, text, e)
                           : err_set(e, CHIMERE_EINVAL, "%s: expected text without NUL", arg);
    mem_free(text);
    return rc;
}

static int do_save(struct chat_session *s, const char *arg, struct err *e) {
    int rc = need(arg, "a file", e);
    if (!rc) rc = chat_session_save(s, arg, e);
    if (!rc && s->terminal) printf("Saved %zu messages.\n", json_array_size(s->messages));
    return rc;
}

static int do_load(struct chat_session *s, const char *arg, struct err *e) {
    int rc = need(arg, "a file", e);
    if (!rc) rc = chat_session_load(s, arg, e);
    if (!rc && s->terminal) chat_session_show(s);
    return rc;
}

static int do_quit(struct chat_session *s, const char *arg, struct err *e) {
    (void)arg, (void)e;
    s->quit = true;
    return 0;
}

static int do_help(struct chat_session *s, const char *arg, struct err *e);

/* clang-format off */
static const struct {
    const char *name, *alias, *arg, *help;
    int (*run)(struct chat_session *s, const char *arg, struct err *e);
} commands[] = {
    {"/help",   "/?",     "",             "show this",                                       do_help},
    {"/reset",  "/clear", "",             "begin a new conversation",                        do_reset},
    {"/regen",  "/retry", "",             "answer the last message again",                   do_regen},
    {"/undo",   NULL,     "",             "remove the last message and its answer",          do_undo},
    {"/system", NULL,     "[TEXT|none]",  "show, set or remove the system message",          do_system},
    {"/think",  NULL,     "[on|off]",     "let the model think before it answers",           do_think},
    {"/set",    NULL,     "[NAME VALUE]", "list the sampling settings, or change one",       do_set},
    {"/show",   NULL,     "",             "print the conversation",                          do_show},
    {"/stats",  NULL,     "",             "figures of the last answer",                      do_stats},
    {"/read",   NULL,     "FILE",         "send a file's text as a message",                 do_read},
    {"/save",   NULL,     "FILE",         "write the conversation as JSON",                  do_save},
    {"/load",   NULL,     "FILE",         "resume a saved conversation",                     do_load},
    {"/quit",   "/exit",  "",             "leave; /bye and Ctrl-D do the same",              do_quit},
    {"/bye",    NULL,     NULL,           NULL,                                              do_quit},
};
/* clang-format on */
enum { N_COMMAND = sizeof commands / sizeof *commands };

const char *const chat_command_names[] = {"/help",  "/reset", "/regen", "/undo",  "/system",
                                          "/think", "/set",   "/show",  "/stats", "/read",
                                          "/save",  "/load",  "/quit",  NULL};

static int do_help(struct chat_session *s, const char *arg, struct err *e) {
    (void)s, (void)arg, (void)e;
    for (int i = 0; i < N_COMMAND; i++)
        if (commands[i].help)
            printf("  %-8s %-13s %s\n", commands[i].name, commands[i].arg, commands[i].help);
    puts("\n  A line that ends in \\ goes on in the next one; text between two \"\"\" has any "
         "number of\n"
         "  lines; Alt-Enter begins a new line. Ctrl-C stops an answer, or drops the line. A "
         "message\n"
         "  that begins with a slash needs a space before it.");
    return 0;
}

bool chat_command_is(const char *line) { return line[0] == '/'; }

int chat_command_run(struct chat_session *s, const char *line, struct err *e) {
    size_t n = strcspn(line, " \t\n");
    for (int i = 0; i < N_COMMAND; i++) {
        const char *names[2] = {commands[i].name, commands[i].alias};
        for (int k = 0; k < 2 && names[k]; k++) {
            if (strlen(names[k]) != n || strncmp(names[k], line, n) != 0) continue;
            char *arg = mem_strdup(line + n + strspn(line + n, " \t\n"));
            if (!arg) return err_set(e, CHIMERE_ENOMEM, "out of memory");
            size_t end = strlen(arg);
            while (end && isspace((unsigned char)arg[end - 1])) arg[--end] = 0;
            int rc = commands[i].run(s, arg, e);
            mem_free(arg);
            return rc;
        }
    }
    err_set(e, CHIMERE_EINVAL, "unknown command '%.*s'", n < 40 ? (int)n : 40, line);
    err_hint(e, "/help lists them; to send it as a message, begin with a space");
    return CHIMERE_EINVAL;
}
