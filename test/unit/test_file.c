/* test_file.c: maps, bounded reads, and writes that are seen whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/ahead.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/reader.h"

#include "await.h"

static char dir[64];

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "test_file.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int n_entries(void) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *f; d && (f = readdir(d));) n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static int drop_dir(void **state) {
    (void)state;
    unlink(in_dir("a"));
    rmdir(in_dir("x/y"));
    rmdir(in_dir("x"));
    return rmdir(dir);
}

static void expect_content(const char *text) {
    char *p;
    size_t n;
    struct err e = {0};
    assert_int_equal(file_read(in_dir("a"), 1 << 20, &p, &n, &e), 0);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(p, text, n + 1); /* the final NUL included */
    mem_free(p);
}

static void writes_appear_only_when_committed(void **state) {
    (void)state;
    struct file_writer w;
    struct err e = {0};
    assert_int_equal(file_writer_open(&w, in_dir("a"), &e), 0);
    fputs("old", w.f);
    assert_false(file_exists(in_dir("a")));
    assert_int_equal(file_writer_commit(&w, &e), 0);
    expect_content("old");

    assert_int_equal(file_writer_open(&w, in_dir("a"), &e), 0);
    fputs("new content", w.f);
    fflush(w.f);
    expect_content("old"); /* until the commit */
    file_writer_abort(&w);
    file_writer_abort(&w); /* a second one does nothing */
    expect_content("old");
    assert_int_equal(n_entries(), 1); /* no temporary file is left */

    assert_int_equal(file_writer_open(&w, in_dir("a"), &e), 0);
    fputs("new content", w.f);
    assert_int_equal(file_writer_commit(&w, &e), 0);
    expect_content("new content");
    assert_int_equal(n_entries(), 1);
}

static void a_write_that_fails_keeps_the_old_file(void **state) {
    (void)state;
    struct file_writer w;
    struct err e = {0};
    assert_int_equal(file_writer_open(&w, in_dir("no/such/folder"), &e), CHIMERE_ENOENT);
    assert_non_null(strstr(e.text, "no/such/folder"));
    if (access("/dev/full", W_OK) != 0) skip();
    /* a device that takes nothing: the buffered bytes fail at the flush of the commit */
    assert_int_equal(file_writer_open(&w, in_dir("a"), &e), 0);
    assert_non_null(freopen("/dev/full", "wb", w.f));
    fputs("lost", w.f);
    assert_int_equal(file_writer_commit(&w, &e), CHIMERE_EIO);
    assert_non_null(strstr(e.text, "cannot write"));
    expect_content("new content");
    assert_int_equal(n_entries(), 1);
}

static void reads_stop_at_their_ceiling(void **state) {
    (void)state;
    char *p;
    size_t n;
    struct err e = {0};
    assert_int_equal(file_read(in_dir("a"), 11, &p, &n, &e), 0); /* exactly as long */
    mem_free(p);
    assert_int_equal(file_read(in_dir("a"), 10, &p, &n, &e), CHIMERE_ELIMIT);
    assert_null(p);
    assert_non_null(strstr(e.text, "expected at most 10 bytes"));
    assert_int_equal(file_read("/dev/zero", 1 << 20, &p, &n, &e), CHIMERE_ELIMIT);
    assert_int_equal(file_read(in_dir("missing"), 10, &p, &n, &e), CHIMERE_ENOENT);
    assert_int_equal(file_read(dir, 10, &p, &n, &e), CHIMERE_EIO);
    assert_non_null(strstr(e.text, dir));
}

static void only_regular_files_are_mapped(void **state) {
    (void)state;
    struct file_map m;
    struct err e = {0};
    assert_int_equal(file_map(&m, in_dir("a"), &e), 0);
    assert_int_equal(m.size, 11);
    assert_memory_equal(m.data, "new content", 11);
    file_unmap(&m);
    assert_null(m.data);
    file_unmap(&m); /* twice is harmless */
    assert_int_equal(file_map(&m, dir, &e), CHIMERE_EINVAL);
#ifndef _WIN32 /* has neither as files */
    assert_int_equal(file_map(&m, "/dev/zero", &e), CHIMERE_EINVAL);
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_equal(file_map(&m, in_dir("pipe"), &e), CHIMERE_EINVAL); /* does not hang */
    unlink(in_dir("pipe"));
#endif
    struct file_writer w;
    assert_int_equal(file_writer_open(&w, in_dir("empty"), &e), 0);
    assert_int_equal(file_writer_commit(&w, &e), 0);
    assert_int_equal(file_map(&m, in_dir("empty"), &e), 0);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    file_unmap(&m);
    unlink(in_dir("empty"));
}

/* Twice, so that on Windows what the first one left is removed. */
static void what_is_mapped_can_be_replaced(void **state) {
    (void)state;
    struct file_map m;
    struct err e = {0};
    int n = n_entries();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(file_write(in_dir("mapped"), i ? "second" : "before", 6, &e), 0);
        assert_int_equal(file_map(&m, in_dir("mapped"), &e), 0);
        assert_int_equal(file_write(in_dir("mapped"), "behind", 6, &e), 0);
        assert_memory_equal(m.data, i ? "second" : "before", 6); /* the reader keeps what it has */
        file_unmap(&m);
    }
    assert_int_equal(file_map(&m, in_dir("mapped"), &e), 0);
    assert_memory_equal(m.data, "behind", 6);
    file_unmap(&m);
    assert_int_equal(file_write(in_dir("mapped"), "", 0, &e), 0);
    assert_int_equal(n_entries(), n + 1); /* no other file is left behind */
    unlink(in_dir("mapped"));
}

static void folders_are_made_on_the_way(void **state) {
    (void)state;
    struct err e = {0};
    assert_int_equal(file_mkdirs(in_dir("x/y"), &e), 0);
    assert_int_equal(file_mkdirs(in_dir("x/y"), &e), 0);
    struct stat st;
    assert_int_equal(stat(in_dir("x/y"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
#ifndef _WIN32 /* access lists, not modes */
    assert_int_equal(st.st_mode & 0777, 0700);
#endif
    assert_int_equal(file_mkdirs(in_dir("a/b"), &e), CHIMERE_EIO);
    assert_int_equal(file_mkdirs(in_dir("a"), &e), CHIMERE_EIO); /* a file stands there */
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(file_mkdirs(name, &e), CHIMERE_ELIMIT);
}

static bool is_resident(const unsigned char *at) {
    unsigned char one = 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(mincore((void *)((uintptr_t)at / page * page), 1, &one), 0);
    return one & 1;
}

static bool becomes_resident(const unsigned char *at, int ms) {
    for (int i = 0; i < ms && !is_resident(at); i++) usleep(1000);
    return is_resident(at);
}

/* Pages are in memory before anybody reads them, but only AHEAD_BYTES after the part in use. */
static void parts_are_read_before_they_are_used(void **state) {
    (void)state;
    enum { FIRST = 8192, MORE = 16 << 20, TMPFS = 0x01021994 };
    const size_t size = FIRST + (size_t)AHEAD_BYTES + 2 * MORE;
    struct statfs fs;
    struct file_map m;
    struct ahead *a;
    struct err e = {0};
    assert_int_equal(file_write(in_dir("a"), "x", 1, &e), 0);
    assert_int_equal(truncate(in_dir("a"), (off_t)size), 0);
    assert_int_equal(statfs(in_dir("a"), &fs), 0);
    if (fs.f_type == TMPFS) {
        puts("skip: files in memory, a build folder on a disk");
        return;
    }
    assert_int_equal(file_map(&m, in_dir("a"), &e), 0);
    const unsigned char *probe = m.data + AHEAD_BYTES / 2;
    if (madvise((void *)(uintptr_t)probe, 1, MADV_WILLNEED) || !becomes_resident(probe, 5000)) {
        puts("skip: reading ahead, this system ignores the advice"); /* such as qemu-user */
        file_unmap(&m);
        assert_int_equal(truncate(in_dir("a"), 0), 0);
        return;
    }
    const struct ahead_part parts[] = {{.at = m.data + 1, .n = FIRST - 1},
                                       {.at = m.data + FIRST, .n = size - FIRST}};
    assert_false(is_resident(m.data + size - MORE));
    const struct ahead_params p = {.part = parts, .n = 2};
    assert_int_equal(ahead_new(&a, &p, &e), 0);
    assert_true(becomes_resident(m.data + AHEAD_BYTES - MORE, AWAIT_MS));
    assert_true(becomes_resident(m.data + FIRST, AWAIT_MS));
    usleep(50000);
    assert_false(is_resident(m.data + size - MORE));
    ahead_use(a, 1);
    assert_true(becomes_resident(m.data + size - 1, AWAIT_MS));
    ahead_free(a);
    file_unmap(&m);
    assert_int_equal(truncate(in_dir("a"), 0), 0);
}

/* ---- without the page cache ---- */

enum { ONCE_BYTES = 9 << 20, ONCE_ROOM = 3 << 20, N_ONCE = 7 };

/* A file whose pages are not in memory. Returns false if this system keeps them there. */
static bool make_uncached(unsigned char *bytes, struct file_map *m) {
    struct err e = {0};
    for (size_t i = 0; i < ONCE_BYTES; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(file_write(in_dir("a"), bytes, ONCE_BYTES, &e), 0);
    int fd = open(in_dir("a"), O_RDONLY);
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    assert_int_equal(file_map(m, in_dir("a"), &e), 0);
    if (!is_resident(m->data + ONCE_BYTES / 2)) return true;
    puts("skip: reading without the page cache, a build folder on a disk");
    file_unmap(m);
    return false;
}

/* Parts of all sizes at odd places, one of which the program uses later too, and one that is larger than the room. None
 * ends in the first half of its first sector, so half of any read lacks some of its part. */
static void list_once(const struct file_map *m, struct ahead_part part[N_ONCE]) {
    static const size_t at[N_ONCE + 1] = {1,       5000,    1502000, 1502032,
                                          2900000, 5000000, 5700000, ONCE_BYTES - 1};
    for (int i = 0; i < N_ONCE; i++)
        part[i] = (struct ahead_part){
            .at = m->data + at[i], .n = at[i + 1] - at[i], .is_once = i != 4, .offset = at[i]};
}

/* Uses all parts, whose bytes must be right, in memory or in the mapping. Returns how many were in memory. */
static int use_once(struct ahead *a, const struct ahead_part part[N_ONCE],
                    const unsigned char *bytes) {
    int n_direct = 0;
    for (size_t i = 0; i < N_ONCE; i++) {
        const void *at = ahead_use(a, i);
        n_direct += at != part[i].at;
        if (at != part[i].at) assert_memory_equal(at, bytes + part[i].offset, part[i].n);
    }
    return n_direct;
}

static struct ahead_params once_params(const struct ahead_part part[N_ONCE],
                                       const struct ahead_file *file) {
    return (struct ahead_params){
        .part = part, .n = N_ONCE, .file = file, .n_file = 1, .room_bytes = ONCE_ROOM};
}

static void parts_used_once_are_read_without_the_page_cache(void **state) {
    (void)state;
    unsigned char *bytes = mem_alloc(ONCE_BYTES);
    struct file_map m;
    struct ahead_part part[N_ONCE];
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s", in_dir("a"));
    const struct ahead_file file = {path, ONCE_BYTES};
    assert_non_null(bytes);
    if (make_uncached(bytes, &m)) {
        struct ahead *a;
        list_once(&m, part);
        struct ahead_params p = once_params(part, &file);
        assert_int_equal(ahead_new(&a, &p, &e), 0);
        assert_int_equal(use_once(a, part, bytes), N_ONCE - 2);
        assert_int_equal(ahead_direct_bytes(a), part[6].offset - part[0].offset - part[4].n);
        ahead_free(a);
        assert_false(is_resident(m.data + 1000000));
        for (int unused = 0; unused < 3; unused++) { /* parts that were posted, but are not used */
            assert_int_equal(ahead_new(&a, &p, &e), 0);
            for (size_t i = 0; i < (size_t)unused; i++) ahead_use(a, 2 * i + 1);
            ahead_free(a);
        }
        memset(bytes, 0, ONCE_BYTES); /* a file in memory is used where it is */
        for (size_t i = 0; i < ONCE_BYTES; i += 4096) bytes[0] |= m.data[i];
        assert_int_equal(ahead_new(&a, &p, &e), 0);
        assert_int_equal(use_once(a, part, bytes), 0);
        ahead_free(a);
        file_unmap(&m);
    }
    mem_free(bytes);
    assert_int_equal(truncate(in_dir("a"), 0), 0);
}

/* A part that cannot be read is used in the mapping; so are all if there is no memory for reading them. */
static void parts_that_cannot_be_read_are_used_in_the_mapping(void **state) {
    (void)state;
    unsigned char *bytes = mem_alloc(ONCE_BYTES);
    struct file_map m;
    struct ahead *a;
    struct ahead_part part[N_ONCE];
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s", in_dir("a"));
    const struct ahead_file file = {path, ONCE_BYTES}, other = {path, ONCE_BYTES - 1};
    assert_non_null(bytes);
    if (make_uncached(bytes, &m)) {
        list_once(&m, part);
        struct ahead_params p = once_params(part, &file);
        for (int error = 0; error <= EIO; error += EIO) { /* a short read; a failed one */
            reader_fail_nth(2, error);
            assert_int_equal(ahead_new(&a, &p, &e), 0);
            assert_int_equal(use_once(a, part, bytes), N_ONCE - 3);
            ahead_free(a);
            reader_fail_nth(0, 0);
        }
        for (int nth = 1; nth < 80; nth++) {
            mem_fail_nth(nth);
            int rc = ahead_new(&a, &p, &e);
            mem_fail_nth(0);
            assert_true(rc == 0 || rc == CHIMERE_ENOMEM);
            if (!rc) use_once(a, part, bytes);
            ahead_free(rc ? NULL : a);
        }
        p.file = &other; /* its size changed since it was mapped */
        assert_int_equal(ahead_new(&a, &p, &e), 0);
        assert_int_equal(use_once(a, part, bytes), 0);
        ahead_free(a);
        file_unmap(&m);
    }
    mem_free(bytes);
    assert_int_equal(truncate(in_dir("a"), 0), 0);
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        struct file_writer w;
        mem_fail_nth(nth);
        assert_int_equal(file_writer_open(&w, in_dir("a"), NULL), CHIMERE_ENOMEM);
        mem_fail_nth(0);
    }
    char *p;
    size_t n;
    mem_fail_nth(1);
    assert_int_equal(file_read(in_dir("a"), 100, &p, &n, NULL), CHIMERE_ENOMEM);
    mem_fail_nth(2); /* when the first 64 KiB are full */
    assert_int_equal(file_read("/dev/zero", 1 << 20, &p, &n, NULL), CHIMERE_ENOMEM);
    mem_fail_nth(0);
    assert_int_equal(n_entries(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_appear_only_when_committed),
        cmocka_unit_test(a_write_that_fails_keeps_the_old_file),
        cmocka_unit_test(reads_stop_at_their_ceiling),
        cmocka_unit_test(only_regular_files_are_mapped),
        cmocka_unit_test(what_is_mapped_can_be_replaced),
        cmocka_unit_test(folders_are_made_on_the_way),
        cmocka_unit_test(parts_are_read_before_they_are_used),
        cmocka_unit_test(parts_used_once_are_read_without_the_page_cache),
        cmocka_unit_test(parts_that_cannot_be_read_are_used_in_the_mapping),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
