/* mutate_request.c: changes for fuzz_request that keep the body JSON: one value anywhere in it becomes another, goes, or is
 * there twice. Half of the changes are libFuzzer's own. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { MOST_DEPTH = 8 };

static json_t *new_value(unsigned r) {
    static const char *const values[] = {"null",
                                         "true",
                                         "0",
                                         "-1",
                                         "1e308",
                                         "9223372036854775807",
                                         "0.5",
                                         "\"\"",
                                         "\"auto\"",
                                         "\"\\u0000\"",
                                         "\"a\\ud83d\\ude00\"",
                                         "[]",
                                         "{}",
                                         "[[[[]]]]",
                                         "[\"\"]",
                                         "{\"type\":\"object\"}"};
    const char *s = values[r % (sizeof values / sizeof *values)];
    return json_loads(s, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static void change_object(json_t *o, const char *key, unsigned r) {
    if (r % 4 == 0) {
        json_object_del(o, key);
    } else if (r % 4 == 1) { /* the value of another key */
        const char *other;
        json_t *v;
        unsigned left = r / 64 % (unsigned)json_object_size(o);
        json_object_foreach(o, other, v) if (!left--) {
            json_object_set_new(o, key, json_deep_copy(v));
            break;
        }
    } else {
        json_object_set_new(o, key, new_value(r / 4));
    }
}

static void change_array(json_t *a, size_t i, unsigned r) {
    if (r % 4 == 0) json_array_remove(a, i);
    else if (r % 4 == 1) json_array_insert_new(a, i, json_deep_copy(json_array_get(a, i)));
    else json_array_set_new(a, i, new_value(r / 4));
}

/* Goes down at random and changes one member or element. */
static void change(json_t *v, unsigned r) {
    for (int depth = 0; depth < MOST_DEPTH; depth++, r = r * 1664525u + 1013904223u) {
        size_t n = json_is_object(v) ? json_object_size(v) : json_array_size(v);
        size_t i = n ? r / 8 % n : 0;
        if (!n) return;
        void *it = json_is_object(v) ? json_object_iter(v) : NULL;
        for (size_t k = 0; it && k < i; k++) it = json_object_iter_next(v, it);
        json_t *child = it ? json_object_iter_value(it) : json_array_get(v, i);
        if (r % 8 && json_is_object(child) + json_is_array(child) &&
            json_object_size(child) + json_array_size(child)) {
            v = child;
            continue;
        }
        if (it) change_object(v, json_object_iter_key(it), r / 64);
        else change_array(v, i, r / 64);
        return;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    json_t *body = seed % 2 || size < 2
                       ? NULL
                       : json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, NULL);
    if (!body) return LLVMFuzzerMutate(data, size, max);
    change(body, seed / 2);
    char *text = json_dumps(body, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    json_decref(body);
    if (n && n + 1 <= max) {
        if (seed % 32 == 0) data[0]++;
        memcpy(data + 1, text, n);
        size = n + 1;
    }
    free(text);
    return size;
}
