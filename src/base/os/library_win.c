/* library_win.c: library.h for Windows. */
#include "base/os/library.h"

#include <windows.h>

#include "base/file.h"
#include "base/win/path_win.h"

static int load(struct library **out, const char *path, DWORD where, struct err *e) {
    wchar_t wide[WIN_PATH];
    HMODULE h = win_wide(path, wide) ? LoadLibraryExW(wide, NULL, where) : NULL;
    if (!h)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: cannot be loaded: Windows error %lu", path,
                       GetLastError());
    *out = (struct library *)h;
    return 0;
}

int library_open(struct library **out, const char *path, struct err *e) {
    *out = NULL;
    if (!file_exists(path)) return err_set(e, CHIMERE_ENOENT, "%s: no such library", path);
    return load(out, path, LOAD_WITH_ALTERED_SEARCH_PATH, e);
}

int library_open_system(struct library **out, const char *name, struct err *e) {
    *out = NULL;
    return load(out, name, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, e);
}

void *library_symbol(struct library *l, const char *name) {
    return (void *)GetProcAddress((HMODULE)l, name);
}
