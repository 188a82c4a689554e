/* replay.c: runs a fuzz target over the files of the folders given, without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    size_t n = 0, cap = 1 << 22;
    uint8_t *all = malloc(cap);
    if (all) n = fread(all, 1, cap, f);
    fclose(f);
    /* an exact-size copy, so that a sanitizer sees the first byte read beyond the end */
    uint8_t *data = all ? malloc(n ? n : 1) : NULL;
    if (data) {
        memcpy(data, all, n);
        LLVMFuzzerTestOneInput(data, n);
    }
    free(data);
    free(all);
    return data ? 0 : -1;
}

int main(int argc, char **argv) {
    int n_file = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            fprintf(stderr, "%s: cannot open corpus\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(d));) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (entry->d_name[0] != '.' && run_file(path) == 0) n_file++;
        }
        closedir(d);
    }
    printf("%d inputs replayed\n", n_file);
    return n_file ? 0 : 1;
}
