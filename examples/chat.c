/* chat.c: asks a model one question and prints the answer as it is written; then asks for one in a form.
 *
 *     cc chat.c $(pkg-config --cflags --libs chimere) -o chat && ./chat MODEL.gguf "What is 12 plus 30?" */
#include <chimere.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int on_event(void *ud, const struct chimere_event *ev) {
    (void)ud;
    if (ev->kind == CHIMERE_TEXT) fwrite(ev->text, 1, ev->n, stdout);
    fflush(stdout);
    return 0;
}

static int fail(const struct chimere_error *e) {
    fprintf(stderr, "%s: %s\n%s\n", chimere_strerror(e->code), e->text, e->hint);
    return 1;
}

/* The question as JSON; a real program has a library for this. */
static void quote(const char *text, char *out, size_t size) {
    size_t at = 0;
    for (; *text && at + 8 < size; text++) {
        if (*text == '"' || *text == '\\') out[at++] = '\\';
        if ((unsigned char)*text >= ' ') out[at++] = *text;
    }
    out[at] = 0;
}

int main(int argc, char **argv) {
    struct chimere_error e = {0};
    struct chimere_model_options mo;
    struct chimere_model *m;
    struct chimere_session *s;
    struct chimere_options o;
    struct chimere_answer a;
    char question[2048], messages[2200];
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL.gguf QUESTION\n", argv[0]);
        return 2;
    }
    chimere_model_options_init(&mo);
    mo.path = argv[1];
    if (chimere_model_open(&m, &mo, &e)) return fail(&e);
    if (chimere_session_new(&s, m, &e)) return fail(&e);

    chimere_options_init(&o);
    o.temperature = 0;
    o.max_tokens = 100;
    o.on_event = on_event;
    quote(argv[2], question, sizeof question);
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
    if (chimere_chat(s, messages, &o, &a, &e)) return fail(&e);
    printf("\n(%s: %d tokens read, %d written)\n", chimere_model_name(m), a.n_prompt,
           a.n_generated);
    chimere_answer_free(&a);

    /* An answer in a form: JSON that matches a schema. */
    o.on_event = NULL;
    o.json_schema = "{\"type\": \"object\", \"properties\": {\"sure\": {\"type\": \"boolean\"}}, "
                    "\"required\": [\"sure\"], \"additionalProperties\": false}";
    if (chimere_chat(s, messages, &o, &a, &e)) return fail(&e);
    printf("%s\n", a.text);
    chimere_answer_free(&a);

    chimere_session_free(s);
    chimere_model_close(m);
    return 0;
}
