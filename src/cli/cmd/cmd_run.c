/* cmd_run.c: answers one question, or continues a text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/str.h"
#include "cli/args/chat_args.h"
#include "cli/args/draft_args.h"
#include "cli/term.h"

const struct cfg_opt run_options[] = {
    MODEL_OPTIONS,
    CACHE_OPTIONS,
    ENGINE_OPTIONS,
    LLAMA_OPTIONS,
    ENGRAM_OPTIONS,
    SAMPLING_OPTIONS,
    {"prompt", 'p', CFG_STR, "TEXT", NULL, 0, 0, NULL, "the user's message"},
    {"file", 'f', CFG_STR, "FILE", NULL, 0, 0, NULL,
     "read the message from a file; -: standard input"},
    {"system", 0, CFG_STR, "TEXT", NULL, 0, 0, NULL, "system message"},
    {"n-predict", 'n', CFG_INT, "N", "0", 0, 1 << 30, NULL,
     "maximum number of tokens; 0: up to the context"},
    {"think", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "let the model think first"},
    {"raw", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "plain completion, no chat template"},
    {"stop", 0, CFG_LIST, "TEXT", NULL, 0, 0, NULL, "stop at this text; may be repeated"},
    {"json", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "print one JSON object at the end"},
    {0}};

struct sink {
    bool quiet; /* --json: collect the output, do not print it */
    bool grey;  /* thinking is shown, on a terminal with colours */
    bool thinking;
    struct buf content, reasoning;
};

static void show(struct sink *s, const struct chat_event *ev) {
    bool thought = ev->kind == CHAT_REASONING;
    if (thought && !s->grey) return;
    if (s->thinking != thought && s->grey) fputs(thought ? "\033[90m" : "\033[0m", stdout);
    s->thinking = thought;
    term_write(stdout, ev->text, ev->n);
    fflush(stdout);
}

static int on_event(void *ud, const struct chat_event *ev) {
    struct sink *s = ud;
    if (ev->kind == CHAT_CONTENT) buf_put(&s->content, ev->text, ev->n);
    else if (ev->kind == CHAT_REASONING) buf_put(&s->reasoning, ev->text, ev->n);
    else return 0;
    if (!s->quiet) show(s, ev);
    return 0;
}

static const char *const finish_names[] = {
    [FINISH_NONE] = "none",   [FINISH_STOP] = "stop",           [FINISH_LENGTH] = "length",
    [FINISH_CALLS] = "calls", [FINISH_CANCELLED] = "cancelled", [FINISH_ERROR] = "error"};

static void print_json(const struct sink *s, const struct answer *a) {
    const struct engine_stats *st = answer_stats(a);
    json_t *o = json_object();
    json_object_set_new(o, "content", json_stringn(s->content.n ? s->content.p : "", s->content.n));
    if (s->reasoning.n)
        json_object_set_new(o, "reasoning", json_stringn(s->reasoning.p, s->reasoning.n));
    json_object_set_new(o, "finish", json_string(finish_names[answer_finish(a)]));
    json_object_set_new(o, "n_prompt", json_integer(st->n_prompt));
    json_object_set_new(o, "n_generated", json_integer(st->n_generated));
    json_object_set_new(o, "n_drafted", json_integer(st->n_drafted));
    json_object_set_new(o, "n_accepted", json_integer(st->n_accepted));
    json_object_set_new(o, "prefill_ms", json_real(round(st->prefill_ms * 1000) / 1000));
    json_object_set_new(o, "decode_ms", json_real(round(st->decode_ms * 1000) / 1000));
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    putchar('\n');
    json_decref(o);
}

enum { MAX_MESSAGE_BYTES = 64 << 20 };

static bool names_model(const char *s) { return str_starts(s, "hf:") || str_ends(s, ".gguf"); }

/* Takes the positional arguments [MODEL] [TEXT]. A single one is a model if it looks like a file or the name of a
 * model on a hub. */
static int take_positional(struct cfg *c, const char **text, struct err *e) {
    int n = cfg_n_pos(c), n_model = n == 2 || (n == 1 && names_model(cfg_pos(c, 0)));
    *text = cfg_pos(c, n_model);
    if (n > 2) return err_set(e, CHIMERE_EINVAL, "expected [MODEL] TEXT, got %d arguments", n);
    return n_model ? cfg_set(c, "model", cfg_pos(c, 0), e) : 0;
}

/* Reads the message from -p, -f, the command line, or standard input if that is not a terminal. */
static int read_message(const struct cfg *c, const char *given, char **text, size_t *n,
                        struct err *e) {
    const char *prompt = cfg_str(c, "prompt"), *file = cfg_str(c, "file");
    if (!!prompt + !!file + !!given > 1)
        return err_set(e, CHIMERE_EINVAL, "expected one message: TEXT, -p TEXT or -f FILE");
    if (given) prompt = given;
    if (prompt && strcmp(prompt, "-") == 0) file = "-";
    if (!prompt && !file && !os_is_terminal(stdin)) file = "-";
    if (file) {
        int rc = file_read(file, MAX_MESSAGE_BYTES, text, n, e);
        if (rc) return rc;
    } else if (prompt) {
        *text = mem_strdup(prompt);
        *n = strlen(prompt);
        if (!*text) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (*n || (cfg_bool(c, "raw") && (prompt || file))) return 0;
    err_set(e, CHIMERE_EINVAL, "expected a message");
    err_hint(e,
             "chimere run \"Who are you?\", or chimere run <FILE; chimere chat for a conversation");
    return CHIMERE_EINVAL;
}

static int encode(struct chat_rig *r, const struct cfg *c, const char *text, size_t n_text,
                  int32_t **ids, size_t *n, bool *in_think, struct ngram_memory **memory,
                  struct err *e) {
    if (cfg_bool(c, "raw")) {
        int rc = chat_rig_memory(r, c, NULL, memory, e);
        return rc ? rc : tok_encode(r->tok, text, n_text, false, true, ids, n, e);
    }
    int64_t shortages = mem_shortages();
    json_t *messages = json_array();
    if (cfg_str(c, "system"))
        json_array_append_new(
            messages, json_pack("{s:s, s:s}", "role", "system", "content", cfg_str(c, "system")));
    json_t *user = json_object();
    json_object_set_new(user, "role", json_string("user"));
    json_t *content = json_stringn(text, n_text);
    int rc = content ? 0 : err_set(e, CHIMERE_EINVAL, "message: expected valid UTF-8 without NUL");
    json_object_set_new(user, "content", content);
    json_array_append_new(messages, user);
    if (!rc) rc = chat_rig_encode(r, messages, NULL, cfg_bool(c, "think"), ids, n, in_think, e);
    /* jansson drops what it cannot allocate: the prompt may have gaps */
    if (!rc && mem_shortages() != shortages) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = chat_rig_memory(r, c, messages, memory, e);
    json_decref(messages);
    return rc;
}

static int answer_one(struct chat_rig *r, const struct cfg *c, const char *given, struct err *e) {
    char *text = NULL;
    int32_t *ids = NULL;
    struct ngram_memory *memory = NULL;
    size_t n_text = 0, n = 0;
    bool in_think = false, raw = cfg_bool(c, "raw");
    int rc = read_message(c, given, &text, &n_text, e);
    if (!rc) rc = encode(r, c, text, n_text, &ids, &n, &in_think, &memory, e);
    mem_free(text);
    struct sink s = {.quiet = cfg_bool(c, "json"), .grey = cfg_wants_color(stdout)};
    buf_init(&s.content, (size_t)64 << 20);
    buf_init(&s.reasoning, (size_t)64 << 20);
    struct chat_parse_spec parse = {.calls = chat_template_frames(r->template),
                                    .no_calls = true,
                                    .reasoning = true,
                                    .in_think = in_think};
    struct answer_params p = {.job.prompt = ids,
                              .job.n_prompt = (int32_t)n,
                              .job.max_tokens = (int32_t)cfg_int(c, "n-predict"),
                              .job.loras = r->loras,
                              .job.n_lora = r->n_lora,
                              .job.engram = ngram_memory_use(memory),
                              .parse = raw ? NULL : &parse,
                              .on_event = on_event,
                              .ud = &s};
    p.n_stop = cfg_list(c, "stop", &p.stops);
    chat_rig_sampling(r, c, in_think, &p.job.sampling);
    struct answer *a = NULL;
    if (!rc && !n) rc = err_set(e, CHIMERE_EINVAL, "prompt: expected at least one token");
    if (!rc) rc = answer_start(&a, r->engine, r->tok, &p, e);
    if (!rc) {
        answer_wait(a);
        rc = answer_err(a)->code;
        if (rc) *e = *answer_err(a);
        if (s.quiet && !rc) print_json(&s, a);
        else if (os_is_terminal(stdout)) puts(s.grey ? "\033[0m" : "");
        answer_free(a);
    }
    buf_fini(&s.content);
    buf_fini(&s.reasoning);
    ngram_memory_close(memory);
    mem_free(ids);
    return rc;
}

int cmd_run(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, run_options,
                   "usage: chimere run [MODEL] TEXT | -f FILE | <FILE [-m FILE] [-n N] [--temp T] "
                   "[--seed S]\n"
                   "                   [--think] [--raw] [--json] [--lora FILE[:SCALE]]",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    struct chat_rig r;
    const char *given = NULL;
    int rc = take_positional(c, &given, &e);
    if (!rc) rc = model_args_talk(c, &e);
    if (!rc) rc = draft_args_take(c, &e);
    if (!rc) rc = chat_rig_open(&r, c, 1, &e);
    if (!rc) {
        rc = answer_one(&r, c, given, &e);
        chat_rig_close(&r);
    }
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
