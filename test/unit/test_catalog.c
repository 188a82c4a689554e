/* test_catalog.c: which backend a model's name leads to: entries, further names, aliases, the default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "backend/catalog/catalog.h"
#include "base/mem.h"

/* An orchestrator: "many", and "many:NAME" while is_open. */
struct many {
    struct backend front, one;
    bool is_open;
};

static struct backend *find_many(void *ud, const char *name) {
    struct many *m = ud;
    if (!strcmp(name, "many")) return &m->front;
    return m->is_open && !strcmp(name, "many:one") ? &m->one : NULL;
}

static int list_many(void *ud, int (*each)(void *each_ud, const char *name), void *each_ud) {
    const struct many *m = ud;
    int rc = each(each_ud, "many");
    return rc || !m->is_open ? rc : each(each_ud, "many:one");
}

struct bed {
    struct catalog *c;
    struct backend plain, last;
    struct many many;
};

static void bed_open(struct bed *b) {
    struct err e = {0};
    *b = (struct bed){.plain = {.name = "plain"}, .last = {.name = "last"}};
    b->many =
        (struct many){.front = {.name = "many"}, .one = {.name = "many:one"}, .is_open = true};
    const struct catalog_names names = {&b->many, find_many, list_many};
    assert_int_equal(catalog_new(&b->c, &e), 0);
    assert_int_equal(catalog_add(b->c, &b->plain, NULL, &e), 0);
    assert_int_equal(catalog_add(b->c, &b->many.front, &names, &e), 0);
    assert_int_equal(catalog_add(b->c, &b->last, NULL, &e), 0);
}

static void leads_to(struct bed *b, const char *name, const struct backend *to, size_t entry) {
    struct err e = {0};
    size_t at = 99;
    if (catalog_resolve(b->c, name, &at, &e) != to || at != entry)
        fail_msg("%s: entry %zu: %s", name ? name : "(none)", at, e.text);
}

static void names_lead_to_their_backends(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    bed_open(&b);
    leads_to(&b, NULL, &b.plain, 0);
    leads_to(&b, "", &b.plain, 0);
    leads_to(&b, "plain", &b.plain, 0);
    leads_to(&b, "last", &b.last, 2);
    leads_to(&b, "many", &b.many.front, 1);
    leads_to(&b, "many:one", &b.many.one, 1); /* the entry whose place in the queue it takes */
    assert_null(catalog_resolve(b.c, "many:two", NULL, &e));
    assert_int_equal(e.code, CHIMERE_ENOENT);
    assert_non_null(strstr(e.text, "model: there is no 'many:two' here"));
    catalog_alias(b.c, (const char *const[]){"far=last"}, 1, "hf:a/b");
    leads_to(&b, "far", &b.last, 2);
    leads_to(&b, "hf:a/b", &b.plain, 0); /* as the user chose it */
    b.many.is_open = false;
    assert_null(catalog_find(b.c, "many:one", NULL));
    assert_null(catalog_find(b.c, "", NULL));
    catalog_free(b.c);
}

static void aliases_come_after_names(void **state) {
    (void)state;
    static const char *const some[] = {"gpt=last", "last=plain", "x", "deep=many:one", "lost=none"},
                             *const any[] = {"gpt=last", "*=many", "never=plain"};
    struct bed b;
    struct err e = {0};
    bed_open(&b);
    catalog_alias(b.c, some, 5, NULL);
    leads_to(&b, "gpt", &b.last, 2);
    leads_to(&b, "last", &b.last, 2); /* a name that exists is no alias */
    leads_to(&b, "x", &b.plain, 0);
    leads_to(&b, "deep", &b.many.one, 1);
    assert_null(catalog_resolve(b.c, "lost", NULL, &e));
    assert_null(catalog_resolve(b.c, "gp", NULL, &e));
    assert_null(catalog_resolve(b.c, "gpt=last", NULL, &e));
    assert_true(catalog_is_alias(b.c, "x"));
    assert_false(catalog_is_alias(b.c, "y"));
    catalog_alias(b.c, any, 3, NULL);
    leads_to(&b, "gpt", &b.last, 2);
    leads_to(&b, "never", &b.many.front, 1); /* the first that fits */
    catalog_free(b.c);
}

static int add_name(void *ud, const char *name, const struct backend *b) {
    char *all = ud;
    size_t n = strlen(all);
    snprintf(all + n, 256 - n, "%s>%s ", name, b->name);
    return strstr(all, "stop") ? 7 : 0;
}

static void listing_has_every_name_once(void **state) {
    (void)state;
    struct bed b;
    char all[256] = "";
    bed_open(&b);
    assert_int_equal(catalog_list(b.c, add_name, all), 0);
    assert_string_equal(all, "plain>plain many>many last>last many:one>many ");
    assert_int_equal(catalog_count(b.c), 3);
    assert_ptr_equal(catalog_at(b.c, 2), &b.last);
    snprintf(b.last.name, sizeof b.last.name, "stop");
    all[0] = 0;
    assert_int_equal(catalog_list(b.c, add_name, all), 7);
    assert_string_equal(all, "plain>plain many>many stop>stop ");
    catalog_free(b.c);
}

static void a_full_catalogue_and_no_memory_are_refused(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    bed_open(&b);
    for (int i = 3; i < CATALOG_MAX; i++) assert_int_equal(catalog_add(b.c, &b.last, NULL, &e), 0);
    assert_int_equal(catalog_add(b.c, &b.last, NULL, &e), CHIMERE_ELIMIT);
    catalog_free(b.c);
    mem_fail_nth(1);
    int rc = catalog_new(&b.c, &e);
    mem_fail_nth(0);
    assert_int_equal(rc, CHIMERE_ENOMEM);
    catalog_free(b.c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_lead_to_their_backends),
        cmocka_unit_test(aliases_come_after_names),
        cmocka_unit_test(listing_has_every_name_once),
        cmocka_unit_test(a_full_catalogue_and_no_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
