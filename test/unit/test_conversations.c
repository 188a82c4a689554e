/* test_conversations.c: conversations in the store: trees, sums, versions, owners, search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "scratch.h"
#include "store/conversation.h"
#include "store/copy.h"
#include "store/sql/sql.h"

static struct store *s;
static sqlite3 *other; /* another connection: what the file really has */

/* The server that the suite runs on, in a schema of its own; NULL: a file. */
static const char *server_url(void) { return getenv("CHIMERE_TEST_STORE"); }

static int open_server(void) {
    char url[1024];
    struct err e = {0};
    if (store_open(&s, server_url(), &e)) fail_msg("%s", e.text);
    assert_int_equal(sql_exec(s, "DROP SCHEMA IF EXISTS talk CASCADE; CREATE SCHEMA talk"), SQL_OK);
    store_close(s);
    snprintf(url, sizeof url, "%s&options=-csearch_path%%3Dtalk", server_url());
    if (store_open(&s, url, &e)) fail_msg("%s", e.text);
    return 0;
}

/* What the server has, as a file: the same questions are asked of both. */
static void copy_server(void) {
    char path[256];
    struct store *copy;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/copy.db", scratch);
    if (other) sqlite3_close(other);
    remove(path);
    if (store_open(&copy, path, &e) || store_copy(s, copy, &e) < 0) fail_msg("%s", e.text);
    store_close(copy);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
}

static int open_both(void **state) {
    char path[256];
    struct err e = {0};
    (void)state;
    other = NULL;
    if (server_url()) return open_server();
    snprintf(path, sizeof path, "%s/conversations.db", scratch);
    remove(path);
    if (store_open(&s, path, &e)) fail_msg("%s", e.text);
    return sqlite3_open(path, &other);
}

static int close_both(void **state) {
    (void)state;
    sqlite3_close(other);
    store_close(s);
    return 0;
}

static int64_t ask(const char *sql) {
    sqlite3_stmt *st = NULL;
    if (server_url()) copy_server();
    if (sqlite3_prepare_v2(other, sql, -1, &st, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(other));
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    sqlite3_finalize(st);
    return n;
}

/* The running sums against sums over all rows, by owner and by key. */
static void check_sums(void) {
    assert_int_equal(ask("SELECT count(*) FROM conversations c WHERE c.n_bytes <> 128"
                         " + length(CAST(title||project||metadata||settings AS BLOB)) + (SELECT"
                         " coalesce(sum(n_bytes), 0) FROM conversation_items WHERE conversation ="
                         " c.id)"),
                     0);
    assert_int_equal(ask("SELECT count(*) FROM conversations c WHERE n_item <> (SELECT count(*)"
                         " FROM conversation_items WHERE conversation = c.id)"),
                     0);
    assert_int_equal(
        ask("SELECT count(*) FROM conversation_usage u WHERE instr(owner, char(9)) AND"
            " (n_bytes <> (SELECT coalesce(sum(n_bytes), 0) FROM conversations WHERE owner ="
            " u.owner OR owner || char(9) = u.owner) OR n <> (SELECT count(*) FROM conversations"
            " WHERE owner = u.owner OR owner || char(9) = u.owner))"),
        0);
    assert_int_equal(
        ask("SELECT count(*) FROM conversation_usage u WHERE NOT instr(owner, char(9)) AND"
            " n_bytes <> (SELECT coalesce(sum(n_bytes), 0) FROM conversations WHERE owner = u.owner"
            " OR substr(owner, 1, length(u.owner) + 1) = u.owner || char(9))"),
        0);
    assert_int_equal(ask("SELECT count(*) FROM conversation_items WHERE parent >= id"), 0);
    assert_int_equal(ask("SELECT count(*) FROM conversation_fts WHERE rowid > 0 AND rowid NOT IN"
                         " (SELECT id FROM conversation_items)"),
                     0);
}

static struct store_conversation plain(const char *name, const char *title) {
    return (struct store_conversation){
        .name = name, .title = title, .project = "", .metadata = "{}", .settings = "{}"};
}

static struct store_item item(const char *name, const char *parent, const char *text) {
    return (struct store_item){
        .name = name, .parent = parent, .body = "{\"type\":\"message\"}", .text = text};
}

static void add(const char *owner, const char *name, const char *title) {
    struct err e = {0};
    struct store_conversation c = plain(name, title);
    if (store_conversation_add(s, owner, &c, NULL, 0, &e)) fail_msg("%s", e.text);
}

static int add_one(const char *owner, const char *name, struct store_item x, struct err *e) {
    struct store_conversation_key k = {owner, name, 0};
    return store_items_add(s, &k, &x, 1, e);
}

/* Names and parents as "a<- b<a c<b", in order. */
static char seen[4096];
static int see(void *ud, const struct store_item *x) {
    (void)ud;
    size_t n = strlen(seen);
    snprintf(seen + n, sizeof seen - n, "%s%s<%s", n ? " " : "", x->name,
             x->parent ? x->parent : "-");
    return 0;
}
static const char *tree(const char *owner, const char *name) {
    struct err e = {0};
    seen[0] = 0;
    if (store_items_list(s, owner, name, NULL, false, see, NULL, &e)) fail_msg("%s", e.text);
    return seen;
}

static int see_conversation(void *ud, const struct store_conversation *c) {
    int *left = ud;
    size_t n = strlen(seen);
    snprintf(seen + n, sizeof seen - n, "%s%s", n ? " " : "", c->name);
    return left && --*left == 0;
}
static const char *list(const char *owner, const char *words) {
    struct err e = {0};
    struct store_conversation_query q = {.owner = owner, .words = words, .limit = 100};
    seen[0] = 0;
    if (store_conversation_list(s, &q, see_conversation, NULL, &e)) fail_msg("%s", e.text);
    return seen;
}

static void a_creation_is_whole_or_nothing(void **state) {
    (void)state;
    struct err e = {0};
    struct store_conversation c = plain("c1", "one");
    struct store_item x[3] = {item("a", NULL, "first"), item("b", "a", "second"),
                              item("c", "nowhere", "third")};
    assert_int_equal(store_conversation_add(s, "k", &c, x, 3, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "items[2].parent"));
    assert_int_equal(ask("SELECT (SELECT count(*) FROM conversations) + (SELECT count(*) FROM"
                         " conversation_items) + (SELECT count(*) FROM conversation_fts)"),
                     0);
    x[2].parent = "a";
    assert_int_equal(store_conversation_add(s, "k", &c, x, 3, &e), 0);
    assert_string_equal(tree("k", "c1"), "a<- b<a c<a");
    check_sums();
}

static void an_item_follows_an_earlier_one_of_its_conversation(void **state) {
    (void)state;
    struct err e = {0};
    add("k", "c1", "one");
    add("k", "c2", "two");
    assert_int_equal(add_one("k", "c1", item("a", NULL, "x"), &e), 0);
    assert_int_equal(add_one("k", "c1", item("b", NULL, "x"), &e), 0);
    assert_int_equal(add_one("k", "c2", item("z", "a", "x"), &e), CHIMERE_EINVAL);
    assert_int_equal(add_one("k", "c1", item("self", "self", "x"), &e), CHIMERE_EINVAL);
    assert_int_equal(add_one("k", "c1", item("b", "a", "x"), &e), CHIMERE_EINVAL); /* taken */
    struct store_item root = item("r", NULL, "x");
    root.is_root = true;
    assert_int_equal(add_one("k", "c1", root, &e), 0);
    assert_int_equal(add_one("k", "c1", item("c", "b", "x"), &e), 0);
    assert_string_equal(tree("k", "c1"), "a<- b<a r<- c<b");
    struct store_item late[2] = {item("e", "f", "x"), item("f", NULL, "x")};
    struct store_conversation_key k = {"k", "c1", 0};
    assert_int_equal(store_items_add(s, &k, late, 2, &e), CHIMERE_EINVAL);
    assert_string_equal(tree("k", "c1"), "a<- b<a r<- c<b");
    check_sums();
}

static void items_are_removed_alone_or_with_what_follows(void **state) {
    (void)state;
    struct err e = {0};
    struct store_conversation c = plain("c1", "one");
    struct store_item x[5] = {item("a", NULL, "alpha"), item("b", "a", "beta"),
                              item("c", "b", "gamma"), item("d", "b", "delta"),
                              item("e", "d", "epsilon")};
    assert_int_equal(store_conversation_add(s, "k", &c, x, 5, &e), 0);
    struct store_conversation_key k = {"k", "c1", 0};
    assert_int_equal(store_item_remove(s, &k, "b", false, &e), 0);
    assert_string_equal(tree("k", "c1"), "a<- c<a d<a e<d");
    assert_string_equal(list("k", "beta"), "");
    check_sums();
    assert_int_equal(store_item_remove(s, &k, "d", true, &e), 0);
    assert_string_equal(tree("k", "c1"), "a<- c<a");
    assert_string_equal(list("k", "epsilon"), "");
    assert_string_equal(list("k", "gamma"), "c1");
    check_sums();
    assert_int_equal(store_item_remove(s, &k, "d", true, &e), CHIMERE_ENOENT);
}

static void the_second_of_two_writers_is_refused(void **state) {
    (void)state;
    struct err e = {0};
    add("k", "c1", "one");
    struct store_conversation_change change = {.title = "of the first", .pinned = -1};
    struct store_conversation_key first = {"k", "c1", 1}, second = {"k", "c1", 1};
    assert_int_equal(store_conversation_change(s, &first, &change, &e), 0);
    assert_int_equal(first.version, 2);
    change.title = "of the second";
    assert_int_equal(store_conversation_change(s, &second, &change, &e), CHIMERE_EMISMATCH);
    struct store_item x = item("a", NULL, "x");
    assert_int_equal(store_items_add(s, &second, &x, 1, &e), CHIMERE_EMISMATCH);
    assert_int_equal(store_conversation_remove(s, &second, &e), CHIMERE_EMISMATCH);
    assert_int_equal(ask("SELECT title = 'of the first' AND n_item = 0 FROM conversations"), 1);
    assert_int_equal(store_items_add(s, &first, &x, 1, &e), 0);
    assert_int_equal(first.version, 3);
    check_sums();
}

static void an_owner_sees_its_own_alone(void **state) {
    (void)state;
    struct err e = {0};
    int n = 0;
    add("k", "c1", "secret plans");
    add("k\tbo", "c2", "secret party");
    add("other", "c3", "nothing");
    assert_int_equal(add_one("k", "c1", item("a", NULL, "the secret word is swordfish"), &e), 0);
    assert_string_equal(list("k", "secret"), "c1");
    assert_string_equal(list("k\tbo", "secret"), "c2");
    assert_string_equal(list("other", "secret"), "");
    assert_string_equal(list("other", NULL), "c3");
    assert_int_equal(store_conversation_find(s, "other", "c1", see_conversation, NULL, &e),
                     CHIMERE_ENOENT);
    assert_int_equal(store_item_find(s, "k\tbo", "c1", "a", see, NULL, &e), CHIMERE_ENOENT);
    assert_int_equal(add_one("other", "c1", item("b", NULL, "x"), &e), CHIMERE_ENOENT);
    struct store_conversation_key k = {"k\tbo", "c1", 0};
    assert_int_equal(store_conversation_remove(s, &k, &e), CHIMERE_ENOENT);
    struct store_conversation_query q = {.owner = "other", .after = "c1", .limit = 9};
    assert_int_equal(store_conversation_list(s, &q, see_conversation, &n, &e), CHIMERE_ENOENT);
    check_sums();
}

static void words_find_titles_and_messages(void **state) {
    (void)state;
    struct err e = {0};
    add("k", "c1", "Recettes d'\xc3\xa9t\xc3\xa9");
    add("k", "c2", "work");
    assert_int_equal(add_one("k", "c2", item("a", NULL, "the quick brown fox"), &e), 0);
    /* without accents; a server needs an extension for that */
    assert_string_equal(list("k", server_url() ? "\xc3\xa9t\xc3\xa9" : "ete"), "c1");
    assert_string_equal(list("k", "QUICK fo"), "c2");
    assert_string_equal(list("k", "quick cat"), "");
    /* operators of the query language are words like others */
    const char *const hostile[] = {"\"",       "quick\"",   "NOT quick", "quick OR", "text:quick",
                                   "quick) (", "* ^ { } :", "-quick",    "NEAR(",    "''; --"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) list("k", hostile[i]);
    assert_string_equal(list("k", "quick) ("), "c2");
    assert_string_equal(list("k", "*"), "");
    struct store_conversation_key k = {"k", "c1", 0};
    struct store_conversation_change change = {.title = "soups", .pinned = -1};
    assert_int_equal(store_conversation_change(s, &k, &change, &e), 0);
    assert_string_equal(list("k", "recettes"), "");
    assert_string_equal(list("k", "soup"), "c1");
    struct store_item x = item("a", NULL, "slow green turtle");
    struct store_conversation_key k2 = {"k", "c2", 0};
    assert_int_equal(store_item_change(s, &k2, &x, &e), 0);
    assert_string_equal(list("k", "fox"), "");
    assert_string_equal(list("k", "turtle"), "c2");
    check_sums();
    k.version = k2.version = 0;
    assert_int_equal(store_conversation_remove(s, &k, &e), 0);
    assert_int_equal(store_conversation_remove(s, &k2, &e), 0);
    assert_int_equal(ask("SELECT count(*) FROM conversation_fts"), 0);
    assert_int_equal(ask("SELECT sum(n_bytes) + sum(n) FROM conversation_usage"), 0);
}

static void what_a_user_and_a_key_have_is_limited(void **state) {
    (void)state;
    struct err e = {0};
    add("k\tbo", "c1", "one");
    add("k\tal", "c2", "two");
    check_sums();
    char sql[256];
    snprintf(sql, sizeof sql, "UPDATE conversation_usage SET n_bytes = %lld WHERE owner = 'k\tbo'",
             (long long)STORE_MAX_USER_BYTES - 10);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(add_one("k\tbo", "c1", item("a", NULL, "x"), &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "one user"));
    assert_string_equal(tree("k\tbo", "c1"), "");
    assert_int_equal(add_one("k\tal", "c2", item("a", NULL, "x"), &e), 0);
    snprintf(sql, sizeof sql, "UPDATE conversation_usage SET n_bytes = %lld WHERE owner = 'k'",
             (long long)STORE_MAX_KEY_BYTES - 10);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(add_one("k\tal", "c2", item("b", NULL, "x"), &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "one key"));
    struct store_conversation c = plain("c9", "nine");
    snprintf(sql, sizeof sql, "UPDATE conversation_usage SET n_bytes = 0, n = %d",
             STORE_MAX_CONVERSATIONS);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_conversation_add(s, "k\tcy", &c, NULL, 0, &e), CHIMERE_ELIMIT);
    assert_int_equal(ask("SELECT count(*) FROM conversations"), 2);
}

static void pages_show_each_conversation_once(void **state) {
    (void)state;
    struct err e = {0};
    char name[16], after[16] = "", all[2048] = "";
    int n = 0;
    for (int i = 0; i < 57; i++) {
        snprintf(name, sizeof name, "c%02d", i);
        struct store_conversation c = plain(name, "t");
        c.pinned = i % 10 == 0;
        assert_int_equal(store_conversation_add(s, "k", &c, NULL, 0, &e), 0);
    }
    for (int page = 0; page < 20; page++) {
        struct store_conversation_query q = {
            .owner = "k", .after = after[0] ? after : NULL, .limit = 10};
        seen[0] = 0;
        assert_int_equal(store_conversation_list(s, &q, see_conversation, NULL, &e), 0);
        if (!seen[0]) break;
        for (char *p = seen; *p; p += strcspn(p, " "), p += *p == ' ') {
            snprintf(after, sizeof after, "%.*s", (int)strcspn(p, " "), p);
            assert_null(strstr(all, after));
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s ", after);
            assert_int_equal(n < 6, after[2] == '0'); /* pins first */
            n++;
        }
    }
    assert_int_equal(n, 57);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_both, close_both)
    const struct CMUnitTest tests[] = {
        T(a_creation_is_whole_or_nothing),
        T(an_item_follows_an_earlier_one_of_its_conversation),
        T(items_are_removed_alone_or_with_what_follows),
        T(the_second_of_two_writers_is_refused),
        T(an_owner_sees_its_own_alone),
        T(words_find_titles_and_messages),
        T(pages_show_each_conversation_once),
    };
    const struct CMUnitTest files[] = {T(what_a_user_and_a_key_have_is_limited)};
    int rc = cmocka_run_group_tests(tests, scratch_make, scratch_drop);
    if (!server_url()) rc += cmocka_run_group_tests(files, scratch_make, scratch_drop);
    return rc;
}
