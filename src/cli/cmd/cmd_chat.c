/* cmd_chat.c: a conversation in the terminal, or with messages from a pipe. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/args/chat_args.h"
#include "cli/args/draft_args.h"
#include "cli/chat/chat_command.h"
#include "cli/chat/chat_input.h"
#include "cli/args/remote_args.h"

const struct cfg_opt chat_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    LLAMA_OPTIONS,
    ENGRAM_OPTIONS,
    SAMPLING_OPTIONS,
    REMOTE_OPTIONS,
    {"system", 0, CFG_STR, "TEXT", NULL, 0, 0, NULL, "system message"},
    {"n-predict", 'n', CFG_INT, "N", "0", 0, 1 << 30, NULL,
     "maximum number of tokens of an answer; 0: up to the context"},
    {"think", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "let the model think first"},
    {"load", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "resume a conversation that /save wrote"},
    {"history", 0, CFG_BOOL, NULL, "true", 0, 0, NULL,
     "save the input history for later runs; --no-history"},
    {0}};

static void show_error(const struct chat_session *s, const struct err *e) {
    const char *red = s->color ? "\033[31m" : "", *plain = s->color ? "\033[0m" : "";
    fflush(stdout);
    fprintf(stderr, "%s%s%s\n", red, e->text, plain);
    if (e->hint[0]) fprintf(stderr, "  %s\n", e->hint);
}

static bool is_blank(const char *text) { return text[strspn(text, " \t\n")] == 0; }

/* Loops until the user leaves. With a pipe, the first error ends the loop. */
static int converse(struct chat_session *s, struct chat_input *in, struct err *e) {
    bool asked_to_leave = false;
    while (!s->quit) {
        char *text = NULL;
        int rc = chat_input_read(in, &text, e);
        if (rc == CHIMERE_ECANCELLED) {
            if (asked_to_leave) puts("(Ctrl-D or /quit leaves)");
            asked_to_leave = true;
            continue;
        }
        asked_to_leave = false;
        if (rc <= 0) return rc;
        if (chat_command_is(text)) rc = chat_command_run(s, text, e);
        else rc = is_blank(text) ? 0 : chat_session_say(s, text, e);
        mem_free(text);
        if (rc < 0) {
            if (!chat_input_is_terminal(in)) return rc;
            show_error(s, e);
            *e = (struct err){0};
        }
    }
    return 0;
}

int cmd_chat(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(
            &c, chat_options,
            "usage: chimere chat [-m FILE] [--system TEXT] [--think] [--temp T] [--load FILE]\n"
            "       chimere chat --url URL [--url-model NAME]\n\n"
            "Each line is a message, or a command: /help lists them. With standard input from a\n"
            "pipe, only the answers are printed.",
            argc, argv, &status))
        return status;
    struct err e = {0};
    struct chat_backend *b = NULL;
    struct chat_session s;
    struct chat_input *in = NULL;
    bool is_remote = cfg_str(c, "url");
    int rc = is_remote ? 0 : model_args_talk(c, &e);
    if (!rc && !is_remote) rc = draft_args_take(c, &e);
    if (!rc) rc = is_remote ? chat_remote_open(&b, c, &e) : chat_local_open(&b, c, &e);
    if (!rc) rc = chat_session_init(&s, b, c, &e);
    if (!rc) {
        const struct chat_input_params p = {.keep_history = cfg_bool(c, "history"),
                                            .commands = chat_command_names};
        if (cfg_str(c, "load")) rc = chat_session_load(&s, cfg_str(c, "load"), &e);
        if (!rc) rc = chat_input_open(&in, &p, &e);
        if (!rc && chat_input_is_terminal(in))
            printf("%s. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.\n",
                   s.backend->name);
        if (!rc) rc = converse(&s, in, &e);
        if (in && chat_input_is_terminal(in) && !s.quit) putchar('\n');
        chat_input_close(in);
        chat_session_fini(&s);
    }
    cfg_free(c);
    return rc < 0 ? cli_fail(&e) : 0;
}
