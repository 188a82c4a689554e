/* chat_harmony.h: what test_chat.c asks of harmony, the form of gpt-oss. */
#ifndef CHIMERE_TEST_CHAT_HARMONY_H
#define CHIMERE_TEST_CHAT_HARMONY_H

/* Messages of channels: what the prompt's <|start|>assistant begins. */
#define THOUGHT "<|channel|>analysis<|message|>Need weather.<|end|>"
#define ASKS "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
static void test_harmony(void **state) {
    (void)state;
    struct setup h = {CHAT_CALLS_HARMONY, false, false, false, false};
    check(&h, "<|channel|>final<|message|>Hello <b> & <|x", "C(Hello <b> & <|x)");
    check(&h, THOUGHT "<|start|>assistant<|channel|>final<|message|>Warm.<|return|>",
          "R(Need weather.)C(Warm.)");
    check(&h, THOUGHT "<|start|>assistant" ASKS "{\"city\": \"Pau\"}<|call|>",
          "R(Need weather.)[0 get_weather {\"city\":\"Pau\"}]");
    check(&h, ASKS "{\"city\":\"a<|end|>b\"}", "[0 get_weather {\"city\":\"a<|end|>b\"}]");
    /* the recipient stands with the role; a preamble before the call; two calls */
    check(&h, " to=functions.get_weather<|channel|>commentary json<|message|>{}",
          "[0 get_weather {}]");
    check(&h,
          "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant" ASKS
          "{\"days\":2}<|call|><|start|>assistant to=functions.python<|channel|>commentary"
          "<|message|>{}",
          "C(One moment.)[0 get_weather {\"days\":2}][1 python {}]");
    check(&h, "<|channel|>commentary to=python<|message|>{}", "[0 python {}]"); /* is a tool */
    /* text without frames, and what only begins like one */
    check(&h, "Hello <|channel|>final<|message|>there", "C(Hellothere)");
    check(&h, "<|chan", "C(<|chan)");
    check(&h, " to the point", "C( to the point)");
    check(&h, THOUGHT "<|start|>assistant", "R(Need weather.)");
    /* no calls out of what is none */
    check(&h, "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
          "M(a function that is not among the tools)"
          "C(<|channel|>commentary to=browser.search<|message|>{})");
    check(&h, ASKS "Pau", "M(arguments that are no JSON object)C(" ASKS "Pau)");
    check(&h, "<|channel|>final<|message|>call to=functions.get_weather {}",
          "C(call to=functions.get_weather {})");
    check(&h, "<|channel|>analysis<|message|>I say to=functions.python<|end|>",
          "R(I say to=functions.python)");
    check(&h, "<|channel|>commentary to=functions.<|message|>{}",
          "M(a function that is not among the tools)C(<|channel|>commentary "
          "to=functions.<|message|>{})");
    check(&h, ASKS, "M(the text ends inside a call)C(" ASKS ")");
    struct setup cut = {CHAT_CALLS_HARMONY, false, false, false, true};
    check(&cut, THOUGHT "<|start|>assistant" ASKS "{\"city\": \"P",
          "R(Need weather.)[0 get_weather {\"city\":\"P|");
    check(&cut, THOUGHT "<|start|>assistant<|channel|>commentary to=functions.get_w",
          "R(Need weather.)");
    check(&cut, "<|channel|>analysis<|message|>Need", "R(Need)");
}

#endif
