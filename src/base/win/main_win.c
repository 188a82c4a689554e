/* main_win.c: the start of every program: arguments in UTF-8, streams without translation of line ends, a console that
 * shows UTF-8 and colours. */
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

int wmain(int argc, wchar_t **wide) {
    size_t bytes = 0;
    for (int i = 0; i < argc; i++)
        bytes += (size_t)WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
    char **argv = calloc((size_t)argc + 1, sizeof *argv), *text = malloc(bytes + 1);
    if (!argv || !text) return 1;
    for (int i = 0; i < argc; i++) {
        argv[i] = text;
        text += WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, text, (int)bytes, NULL, NULL);
    }
    _set_fmode(_O_BINARY);
    setlocale(LC_CTYPE, ".UTF8");
    prepare_console();
    return main(argc, argv);
}
