/* Answers of a model against an item of each kind: the first byte chooses the item. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "eval/score.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const items[] = {
    "{\"check\": {\"kind\": \"exact\", \"answer\": [\"a b\"]}}",
    "{\"check\": {\"kind\": \"number\", \"answer\": 1200}}",
    "{\"check\": {\"kind\": \"choice\", \"answer\": \"code\", \"choices\": [\"code\", \"kine\"]}}",
    "{\"check\": {\"kind\": \"contains\", \"answer\": [\"a\", \"-5\"]}}",
    "{\"check\": {\"kind\": \"citation\", \"answer\": [\"a\"], \"source\": 3}}",
    "{\"check\": {\"kind\": \"refusal\", \"answer\": [\"no\"]}}",
    ("{\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"e\": "
     "{\"type\": "
     "\"string\"}, \"n\": {\"type\": \"number\"}}, \"required\": [\"e\"]}}}], \"check\": "
     "{\"kind\": "
     "\"toolcall\", \"answer\": [{\"name\": \"f\", \"arguments\": {\"e\": {\"value\": 7}}}]}}"),
    ("{\"check\": {\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": "
     "{\"y\": "
     "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}}, \"answer\": {\"y\": [1]}}}"),
    "{\"check\": {\"kind\": \"array\", \"n\": 2, \"has\": \"a\"}}",
    ("{\"check\": {\"kind\": \"verdict\", \"answer\": \"no\", \"steps\": [\"correct\", "
     "\"incorrect\"]}}"),
    "{\"check\": {\"kind\": \"copy\", \"answer\": \"a\"}}",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    json_t *item = json_loads(items[data[0] % (sizeof items / sizeof *items)], 0, NULL);
    struct score s;
    struct err e = {0};
    /* the text ends where its memory ends */
    char *text = malloc(size);
    if (!item || !text) abort();
    for (size_t i = 1; i < size; i++) text[i - 1] = (char)data[i];
    int rc = score_answer(item, text, size - 1, &s, &e);
    if (rc) abort(); /* the items are sound: no text may be an error */
    if (s.right && s.has_valid && !s.valid && !s.is_verdict && data[0] % 11 != 2) abort();
    double v;
    (void)score_expression(text, size - 1, &v);
    free(text);
    json_decref(item);
    return 0;
}
