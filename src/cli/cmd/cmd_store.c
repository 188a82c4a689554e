/* cmd_store.c: copies databases and checks them for damage. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "store/copy.h"
#include "store/place.h"

const struct cfg_opt store_options[] = {{0}};

static int copy(const char *from_path, const char *to_path, struct err *e) {
    struct store *from = NULL, *to = NULL;
    if (strcmp(from_path, to_path) == 0)
        return err_set(e, CHIMERE_EINVAL, "store copy: expected two different stores");
    int rc = store_open_existing(&from, from_path, e);
    if (!rc) rc = store_open(&to, to_path, e);
    int64_t n = rc ? rc : store_copy(from, to, e);
    store_close(from);
    store_close(to);
    if (n < 0) return (int)n;
    printf("%lld rows copied\n", (long long)n);
    return 0;
}

static int check(const char *path, struct err *e) {
    struct store *s = NULL;
    int rc = store_open_existing(&s, path, e);
    if (!rc) rc = store_check(s, e);
    store_close(s);
    if (!rc) puts("whole");
    return rc;
}

static int run(const struct cfg *c, struct err *e) {
    const char *verb = cfg_pos(c, 0);
    if (verb && strcmp(verb, "copy") == 0 && cfg_n_pos(c) == 3)
        return copy(cfg_pos(c, 1), cfg_pos(c, 2), e);
    if (verb && strcmp(verb, "check") == 0 && cfg_n_pos(c) == 2) return check(cfg_pos(c, 1), e);
    return err_set(e, CHIMERE_EINVAL, "expected copy FROM TO, or check STORE");
}

int cmd_store(int argc, char **argv) {
    struct cfg *c;
    int status;
    if (!cli_parse(&c, store_options,
                   "usage: chimere store copy FROM TO\n"
                   "       chimere store check STORE\n\n"
                   "A store is a file such as chimere.db, or "
                   "postgres://USER:PASSWORD@HOST/DATABASE. copy wants a\n"
                   "FROM that no server writes to, and a TO without rows of the kinds that FROM "
                   "has; ids stay. A server\n"
                   "with --state-dir has two stores, DIR/chimere.db and that of --db: copy one "
                   "after the other. The index of\n"
                   "saved states is not copied: their files belong to one machine.",
                   argc, argv, &status))
        return status;
    struct err e = {0};
    int rc = run(c, &e);
    cfg_free(c);
    return rc ? cli_fail(&e) : 0;
}
