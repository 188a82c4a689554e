/* test_expert_profile.c: the file of experts' uses: what is written is read; a file that is cut, changed or of another
 * model is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "engine/expert_profile.h"
#include "scratch.h"

enum { N_LAYER = 3, N_EXPERT = 20, N = N_LAYER * N_EXPERT, BYTES = 32 + 4 * N };

static char path[64];
static uint32_t uses[N];
static const struct expert_uses own = {0x0123456789abcdef, N_LAYER, N_EXPERT, uses};

static int read_into(uint32_t *n, struct err *e) {
    struct expert_uses u = own;
    u.n = n;
    return expert_uses_read(path, &u, e);
}

static void what_is_written_is_read(void **state) {
    (void)state;
    uint32_t got[N];
    struct err e = {0};
    char *file;
    size_t n;
    snprintf(path, sizeof path, "%s/uses", scratch);
    assert_int_equal(read_into(got, &e), CHIMERE_ENOENT);
    for (int i = 0; i < N; i++) uses[i] = (uint32_t)i * 2654435761u;
    assert_int_equal(expert_uses_write(path, &own, &e), 0);
    assert_int_equal(read_into(got, &e), 0);
    assert_memory_equal(got, uses, sizeof uses);
    assert_int_equal(file_read(path, 1 << 16, &file, &n, &e), 0);
    assert_int_equal(n, BYTES);
    assert_memory_equal(file, "CHIMEXPR\1\0\0\0", 12);
    assert_memory_equal(file + 16, "\xef\xcd\xab\x89\x67\x45\x23\x01\3\0\0\0\24\0\0\0", 16);
    mem_free(file);
}

static void a_damaged_file_is_refused(void **state) {
    (void)state;
    uint32_t got[N], none[N] = {0};
    struct err e = {0};
    char *file;
    size_t n;
    assert_int_equal(file_read(path, 1 << 16, &file, &n, &e), 0);
    memset(got, 0, sizeof got);
    for (size_t i = 0; i < n; i++) {
        file[i] ^= 4;
        scratch_put_bytes("uses", file, n);
        file[i] ^= 4;
        assert_int_equal(read_into(got, &e), CHIMERE_EFORMAT);
    }
    for (size_t cut = 0; cut < n; cut += 3) {
        scratch_put_bytes("uses", file, cut);
        assert_int_equal(read_into(got, &e), CHIMERE_EFORMAT);
    }
    assert_memory_equal(got, none, sizeof got);
    assert_non_null(strstr(e.text, "damaged"));
    mem_free(file);
}

static void the_file_of_another_model_is_refused(void **state) {
    (void)state;
    uint32_t got[N];
    const struct expert_uses others[] = {{own.hash + 1, N_LAYER, N_EXPERT, uses},
                                         {own.hash, N_LAYER - 1, N_EXPERT, uses},
                                         {own.hash, N_LAYER, N_EXPERT - 1, uses}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct err e = {0};
        assert_int_equal(expert_uses_write(path, &others[i], &e), 0);
        assert_int_equal(read_into(got, &e), CHIMERE_EMISMATCH);
        assert_non_null(strstr(e.text, "of another"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(the_file_of_another_model_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
