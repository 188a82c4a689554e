/* self_win.c: waiting for a word, the size of the cache, the running program: os.h for Windows. */
#include <stdlib.h>
#include <windows.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "base/win/path_win.h"

int64_t os_l3_bytes(void) {
    static SYSTEM_LOGICAL_PROCESSOR_INFORMATION table[1024];
    DWORD n = sizeof table;
    int64_t most = 0;
    if (!GetLogicalProcessorInformation(table, &n)) return 0;
    for (size_t i = 0; i < n / sizeof *table; i++)
        if (table[i].Relationship == RelationCache && table[i].Cache.Level == 3 &&
            table[i].Cache.Size > most)
            most = table[i].Cache.Size;
    return most;
}

void os_wait_word(_Atomic uint32_t *a, uint32_t seen) {
    WaitOnAddress((void *)a, &seen, 4, INFINITE);
}

void os_wake_word(_Atomic uint32_t *a) { WakeByAddressAll((void *)a); }

bool os_program(char *out, size_t out_size) {
    wchar_t wide[WIN_PATH];
    DWORD n = GetModuleFileNameW(NULL, wide, WIN_PATH);
    return n && n < WIN_PATH && win_narrow(wide, out, out_size);
}

/* ---- starting again ---- */

enum { MAX_COMMAND = 32767 }; /* units of a command line, with the zero */

/* Adds one argument in quotes, as CommandLineToArgvW reads it: a backslash is special only before a quote. Returns NULL
 * if it does not fit before `end`. */
static wchar_t *add_quoted(wchar_t *to, const wchar_t *end, const wchar_t *text) {
    size_t n_slash = 0;
    if (end - to < (ptrdiff_t)(2 * wcslen(text) + 4)) return NULL;
    *to++ = L'"';
    for (; *text; text++) {
        if (*text == L'"')
            for (n_slash++; n_slash; n_slash--) *to++ = L'\\';
        n_slash = *text == L'\\' ? n_slash + 1 : 0;
        *to++ = *text;
    }
    for (; n_slash; n_slash--) *to++ = L'\\';
    *to++ = L'"';
    *to++ = L' ';
    *to = 0;
    return to;
}

static bool command_line(char *const *argv, wchar_t *out) {
    static wchar_t wide[MAX_COMMAND];
    wchar_t *to = out;
    for (int i = 0; to && argv[i]; i++) {
        if (!MultiByteToWideChar(CP_UTF8, 0, argv[i], -1, wide, MAX_COMMAND)) return false;
        to = add_quoted(to, out + MAX_COMMAND, wide);
    }
    return to != NULL;
}

/* Of the handles of this process, the new one gets the standard streams alone: sockets are inherited unless told
 * otherwise. It ends with this process, however that ends. */
static bool start_in_job(const wchar_t *path, wchar_t *command, PROCESS_INFORMATION *p) {
    HANDLE streams[3], job = CreateJobObjectW(NULL, NULL);
    DWORD n_stream = 0;
    SIZE_T n = 0;
    STARTUPINFOEXW how = {.StartupInfo = {.cb = sizeof how, .dwFlags = STARTF_USESTDHANDLES}};
    how.StartupInfo.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    how.StartupInfo.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    how.StartupInfo.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    const HANDLE all[] = {how.StartupInfo.hStdInput, how.StartupInfo.hStdOutput,
                          how.StartupInfo.hStdError};
    for (int i = 0; i < 3; i++) {
        bool is_new = all[i] && all[i] != INVALID_HANDLE_VALUE;
        for (DWORD k = 0; k < n_stream; k++) is_new &= streams[k] != all[i];
        if (is_new && SetHandleInformation(all[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT))
            streams[n_stream++] = all[i];
    }
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limit = {.BasicLimitInformation.LimitFlags =
                                                      JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE};
    bool ok = job &&
              SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limit, sizeof limit);
    InitializeProcThreadAttributeList(NULL, 1, 0, &n);
    how.lpAttributeList = ok ? mem_alloc(n) : NULL;
    ok = how.lpAttributeList && InitializeProcThreadAttributeList(how.lpAttributeList, 1, 0, &n);
    if (ok) {
        ok = !n_stream ||
             UpdateProcThreadAttribute(how.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
                                       streams, n_stream * sizeof *streams, NULL, NULL);
        ok = ok && CreateProcessW(path, command, NULL, NULL, n_stream > 0,
                                  CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT, NULL, NULL,
                                  &how.StartupInfo, p);
        DeleteProcThreadAttributeList(how.lpAttributeList);
    }
    mem_free(how.lpAttributeList);
    if (ok && AssignProcessToJobObject(job, p->hProcess) && ResumeThread(p->hThread) != (DWORD)-1)
        return true; /* the job stays open until this process ends */
    if (ok) TerminateProcess(p->hProcess, 1);
    if (job) CloseHandle(job);
    return false;
}

/* A process cannot be replaced: this one waits and ends as the new one does. Ctrl-C reaches both; the handler of
 * signal_win.c keeps this one. */
void os_run_again(char *const *argv) {
    static wchar_t command[MAX_COMMAND];
    wchar_t path[WIN_PATH];
    PROCESS_INFORMATION p;
    DWORD n = GetModuleFileNameW(NULL, path, WIN_PATH), status = 1;
    if (!n || n == WIN_PATH || !command_line(argv, command) || !start_in_job(path, command, &p))
        return;
    WaitForSingleObject(p.hProcess, INFINITE);
    GetExitCodeProcess(p.hProcess, &status);
    exit((int)status);
}
