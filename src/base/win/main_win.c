/* main_win.c: the start of every program: arguments and environment in UTF-8, streams without translation of line ends, a
 * console that shows UTF-8 and colours. */
#include <fcntl.h>
#include <locale.h>
#include <windows.h>

int main(int argc, char **argv);
int wmain(int argc, wchar_t **wide);

static void prepare_console(void) {
    static const DWORD streams[] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    DWORD mode;
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    for (int i = 0; i < 2; i++) {
        HANDLE h = GetStdHandle(streams[i]);
        if (GetConsoleMode(h, &mode)) SetConsoleMode(h, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    for (int fd = 0; fd < 3; fd++) _setmode(fd, _O_BINARY);
    setvbuf(stderr, NULL, _IONBF, 0);
}

static char *narrow(const wchar_t *wide) {
    int n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? malloc((size_t)n) : NULL;
    if (text) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, n, NULL, NULL);
    return text;
}

/* Gives a variable that is not set the value of another. */
static void default_to(const char *name, const char *other) {
    const char *value = getenv(other);
    if (!getenv(name) && value) _putenv_s(name, value);
}

/* UCRT's getenv has the code page of the system. Folders of the user are where Windows wants them. */
static void prepare_environment(void) {
    wchar_t *all = GetEnvironmentStringsW();
    for (wchar_t *v = all; v && *v; v += wcslen(v) + 1) {
        wchar_t *p = v;
        while (*p && *p < 0x80) p++;
        char *text = *p ? narrow(v) : NULL, *value = text ? strchr(text + 1, '=') : NULL;
        if (value) {
            *value = 0;
            _putenv_s(text, value + 1);
        }
        free(text);
    }
    if (all) FreeEnvironmentStringsW(all);
    default_to("HOME", "USERPROFILE");
    default_to("XDG_DATA_HOME", "LOCALAPPDATA");
    default_to("XDG_CONFIG_HOME", "LOCALAPPDATA");
}

int wmain(int argc, wchar_t **wide) {
    char **argv = calloc((size_t)argc + 1, sizeof *argv);
    for (int i = 0; argv && i < argc; i++)
        if (!(argv[i] = narrow(wide[i]))) return 1;
    if (!argv) return 1;
    _set_fmode(_O_BINARY);
    setlocale(LC_CTYPE, ".UTF8");
    prepare_console();
    prepare_environment();
    return main(argc, argv);
}
