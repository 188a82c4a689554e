/* test_limits.c: what one client of the server can take from, do to and learn of another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve_rig.h"

#define ALICE "Connection: close\r\nAuthorization: Bearer secret-one\r\n"
#define BOB "Connection: close\r\nAuthorization: Bearer secret-two\r\n"
#define ADMIN "Connection: close\r\nAuthorization: Bearer secret-all\r\n"
static const char keys[] = "secret-one alice\nsecret-two bob\nsecret-all root admin\n";

static const char *post_as(const struct rig *r, const char *path, const char *who,
                           const char *body) {
    int fd = dial(r);
    post(fd, path, body, strlen(body), who);
    return hear(fd);
}

/* ---- one user's prompts and another's guesses ---- */

/* A letter with a number in it, as its writer's client sends it; extra: further fields. */
static int64_t cached(const struct rig *r, const char *who, int pin, const char *extra) {
    char body[2048];
    snprintf(
        body, sizeof body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Dear bank, the PIN of my card is %04d "
        "and I would like to change it soon, so that nobody else can use the card. Please "
        "answer by letter to my address in the old town, number nine, third floor, and do not "
        "call me before noon, thank you very much for your help and all the best to your "
        "family and friends in the village, whom I have not seen for such a long time. I "
        "hope that the harvest was good, that the bridge stands again and that the children "
        "have grown, and I remain with kind regards your faithful old customer.\"}],"
        "\"max_tokens\":1%s}",
        pin, extra);
    json_t *j = body_of(post_as(r, CHAT, who, body));
    json_t *usage = json_object_get(j, "usage");
    json_t *details = json_object_get(usage, "prompt_tokens_details");
    int64_t n = json_integer_value(json_object_get(details, "cached_tokens"));
    assert_true(json_integer_value(json_object_get(usage, "prompt_tokens")) > 128);
    json_decref(j);
    return n;
}

static void prompts_of_others_leave_no_trace(void **state) {
    struct rig r;
    (void)state;
    rig_cache_bytes = 1 << 24;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys}, 4);
    assert_int_equal(cached(&r, ALICE, 4271, ""), 0);
    assert_true(cached(&r, ALICE, 4271, "") >= 64); /* the cache works */
    for (int pin = 4268; pin < 4275; pin++) assert_int_equal(cached(&r, BOB, pin, ""), 0);
    /* two users of one key are strangers too, and neither sees what has no user */
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, BOB, 1111, ",\"user\":\"carol\"") >= 64);
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"dave\""), 0);
    assert_int_equal(cached(&r, BOB, 1111, ""), 0);
    rig_close(&r);
}

static void sharing_is_an_option(void **state) {
    struct rig r;
    (void)state;
    rig_cache_bytes = 1 << 24;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys, .scope = SCOPE_KEY}, 4);
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, BOB, 1111, ",\"user\":\"dave\"") >= 64);
    assert_int_equal(cached(&r, ALICE, 1111, ""), 0);
    rig_close(&r);
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys, .scope = SCOPE_ALL}, 4);
    assert_int_equal(cached(&r, BOB, 1111, ""), 0);
    assert_true(cached(&r, ALICE, 1111, "") >= 64);
    rig_close(&r);
    /* without keys an address is one caller, whatever users it names */
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    assert_int_equal(cached(&r, NULL, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, NULL, 1111, ",\"user\":\"dave\"") >= 64);
    rig_close(&r);
}

/* ---- roles ---- */

static void administration_needs_the_role(void **state) {
    static const char *const paths[] = {"/metrics", "/slots", "/v1/status"};
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys}, 4);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(status_of(get(&r, paths[i], ALICE + 19)), 403);
        assert_int_equal(status_of(get(&r, paths[i], ADMIN + 19)), 200);
        assert_int_equal(status_of(get(&r, paths[i], NULL)), 401);
    }
    assert_int_equal(status_of(post_as(&r, "/models/load", ALICE, "{\"model\":\"x\"}")), 403);
    assert_int_equal(status_of(post_as(&r, "/models/unload", ALICE, "{\"model\":\"x\"}")), 403);
    assert_int_not_equal(status_of(post_as(&r, "/models/load", ADMIN, "{\"model\":\"x\"}")), 403);
    assert_int_equal(status_of(get(&r, "/v1/models", ALICE + 19)), 200);
    rig_close(&r);
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4); /* no keys: this machine administers */
    assert_int_equal(status_of(get(&r, "/metrics", NULL)), 200);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_others_leave_no_trace),
        cmocka_unit_test(sharing_is_an_option),
        cmocka_unit_test(administration_needs_the_role),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
