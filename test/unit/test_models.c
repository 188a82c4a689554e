/* test_models.c: several models by name on nano: loading on demand, by many at once, room by unloading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "backend/catalog/models.h"

static struct load_params nano(void) {
    struct load_params p;
    load_defaults(&p);
    p.path = TEST_NANO;
    p.quiet = true;
    p.n_thread = 1;
    p.plan.n_ctx = 256;
    p.plan.n_seq = 1;
    return p;
}

static struct models *three(uint64_t budget, int most) {
    struct models *r;
    struct err e = {0};
    struct load_params p = nano();
    assert_int_equal(models_new(&r, budget, most, &e), 0);
    assert_int_equal(models_add(r, "one", &p, &e), 0);
    assert_int_equal(models_add(r, "two", &p, &e), 0);
    p.path = "/nowhere.gguf";
    assert_int_equal(models_add(r, "broken", &p, &e), 0);
    return r;
}

static enum model_state state_of(struct models *r, size_t i) {
    struct model_row rows[8];
    assert_true(models_list(r, rows, 8) > i);
    return rows[i].state;
}

static void names_are_checked(void **s) {
    (void)s;
    struct models *r = three(0, 0);
    struct err e = {0};
    struct load_params p = nano();
    struct backend *b;
    assert_int_equal(models_add(r, "one", &p, &e), CHIMERE_EINVAL);
    assert_int_equal(models_add(r, "a b", &p, &e), CHIMERE_EINVAL);
    assert_int_equal(models_add(r, "", &p, &e), CHIMERE_EINVAL);
    assert_int_equal(models_acquire(r, "three", &b, &e), CHIMERE_ENOENT);
    assert_string_equal(e.text, "model: no model 'three'; there are: one, two, broken");
    assert_int_equal(models_unload(r, "three", &e), CHIMERE_ENOENT);
    models_free(r);
}

static void a_model_loads_when_asked_for(void **s) {
    (void)s;
    struct models *r = three(0, 0);
    struct err e = {0};
    struct backend *a, *b;
    assert_int_equal(state_of(r, 0), MODEL_LISTED);
    assert_int_equal(models_acquire(r, NULL, &a, &e), 0);
    assert_string_equal(a->name, "one");
    assert_int_equal(state_of(r, 0), MODEL_READY);
    assert_int_equal(models_acquire(r, "one", &b, &e), 0);
    assert_ptr_equal(a, b);
    assert_int_equal(models_unload(r, "one", &e), CHIMERE_EBUSY);
    models_release(r, a);
    assert_int_equal(models_unload(r, "one", &e), CHIMERE_EBUSY);
    models_release(r, b);
    assert_int_equal(models_unload(r, "one", &e), 0);
    assert_int_equal(state_of(r, 0), MODEL_LISTED);
    assert_int_equal(models_load(r, "broken", &e), CHIMERE_ENOENT);
    assert_int_equal(state_of(r, 2), MODEL_FAILED);
    assert_int_equal(models_load(r, "two", &e), 0);
    models_free(r);
}

/* Room for one model: the other one goes if it is idle, else the newcomer is refused with the numbers. */
static void room_is_made_by_the_idle(void **s) {
    (void)s;
    struct err e = {0};
    struct memory_plan plan;
    struct load_params p = nano();
    p.plan.budget_bytes = (uint64_t)1 << 40;
    assert_int_equal(plan_make(&plan, TEST_NANO, &p.plan, &e), 0);
    for (int by_count = 0; by_count < 2; by_count++) {
        struct models *r = three(by_count ? 0 : plan.total_bytes * 3 / 2, by_count ? 1 : 0);
        struct backend *a, *b;
        assert_int_equal(models_acquire(r, "one", &a, &e), 0);
        assert_int_equal(models_acquire(r, "two", &b, &e),
                         by_count ? CHIMERE_EBUSY : CHIMERE_ELIMIT);
        assert_int_equal(state_of(r, 0), MODEL_READY);
        models_release(r, a);
        assert_int_equal(models_acquire(r, "two", &b, &e), 0);
        assert_int_equal(state_of(r, 0), MODEL_LISTED);
        assert_int_equal(state_of(r, 1), MODEL_READY);
        models_release(r, b);
        models_free(r);
    }
}

struct crowd {
    struct models *r;
    int n_failed;
};

static void *visit(void *arg) {
    struct crowd *c = arg;
    static const char *const names[] = {"one", "two"};
    for (int i = 0; i < 20; i++) {
        struct err e = {0};
        struct backend *b;
        int rc = models_acquire(c->r, names[i % 2], &b, &e);
        if (rc == CHIMERE_EBUSY) continue; /* the other one was in use */
        if (rc || strcmp(b->name, names[i % 2])) __sync_fetch_and_add(&c->n_failed, 1);
        if (!rc) models_release(c->r, b);
    }
    return NULL;
}

static void a_crowd_shares(void **s) {
    (void)s;
    for (int most = 1; most <= 2; most++) {
        struct crowd c = {.r = three(0, most)};
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, visit, &c);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
        assert_int_equal(c.n_failed, 0);
        struct model_row rows[8];
        size_t n = models_list(c.r, rows, 8);
        for (size_t i = 0; i < n; i++) assert_int_equal(rows[i].n_held, 0);
        models_free(c.r);
    }
}

/* A table of the folder that was named is found there, also by a model loaded later: here it is damaged. */
static void n_gram_tables_come_from_the_folder_named(void **s) {
    (void)s;
    char dir[] = P_tmpdir "/chimere-models-XXXXXX", path[512];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/junk.engram", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("no table", f) >= 0);
    assert_int_equal(fclose(f), 0);
    for (int named = 0; named < 2; named++) {
        struct models *r = three(0, 0);
        struct err e = {0};
        struct backend *b;
        struct request a;
        struct generation *run;
        struct event_sink sink = {.event = NULL};
        if (named) models_engram_dir(r, dir);
        assert_int_equal(models_acquire(r, "two", &b, &e), 0);
        request_init(&a);
        a.prompt = json_string("once");
        a.extra = json_pack("{s:{s:[s]}}", "engram", "tables", "junk");
        assert_int_not_equal(b->ops->prepare(b, &a, &sink, &run, NULL, &e), 0);
        if (named) assert_non_null(strstr(e.text, path));
        else assert_null(strstr(e.text, path));
        request_fini(&a);
        models_release(r, b);
        models_free(r);
    }
    unlink(path);
    rmdir(dir);
}

static void a_directory_lists_what_lies_within(void **s) {
    (void)s;
    char dir[] = P_tmpdir "/chimere-models-XXXXXX", path[512], command[1024];
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command,
             "cd %s && mkdir -p o/r .hidden && touch b.gguf a.gguf o/r/m-Q8_0.gguf "
             "o/r/s-00001-of-00002.gguf o/r/s-00002-of-00002.gguf .hidden/x.gguf o/notes.txt && "
             "ln -s /etc out && ln -s " TEST_NANO " link.gguf",
             dir);
    assert_int_equal(system(command), 0);
    struct models *r;
    struct err e = {0};
    struct load_params p = nano();
    struct model_row rows[8];
    assert_int_equal(models_new(&r, 0, 0, &e), 0);
    assert_int_equal(models_add_dir(r, dir, &p, &e), 0);
    assert_int_equal(models_list(r, rows, 8), 4);
    assert_string_equal(rows[0].name, "a");
    assert_string_equal(rows[1].name, "b");
    assert_string_equal(rows[2].name, "o/r/m-Q8_0");
    assert_string_equal(rows[3].name, "o/r/s-00001-of-00002");
    models_free(r);
    snprintf(path, sizeof path, "rm -r %s", dir);
    assert_int_equal(system(path), 0);
}

int main(void) {
    if (!file_exists(TEST_NANO)) {
        printf("skip: models: the build made no chimere-nano.gguf\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(a_model_loads_when_asked_for),
        cmocka_unit_test(room_is_made_by_the_idle),
        cmocka_unit_test(a_crowd_shares),
        cmocka_unit_test(n_gram_tables_come_from_the_folder_named),
        cmocka_unit_test(a_directory_lists_what_lies_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
