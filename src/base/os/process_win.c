/* process_win.c: process.h for Windows. */
#include "base/os/process.h"

#include <stdio.h>
#include <windows.h>

/* Creation time of a process that has not ended; 0 if there is none. */
static unsigned long long start_of(HANDLE h) {
    FILETIME start, end, kernel, user;
    DWORD code = 0;
    if (!h || !GetExitCodeProcess(h, &code) || code != STILL_ACTIVE ||
        !GetProcessTimes(h, &start, &end, &kernel, &user))
        return 0;
    return (unsigned long long)start.dwHighDateTime << 32 | start.dwLowDateTime;
}

void process_self(char out[PROCESS_MAX_NAME]) {
    snprintf(out, PROCESS_MAX_NAME, "%lu/%llu", GetCurrentProcessId(),
             start_of(GetCurrentProcess()));
}

bool process_is_alive(const char *name) {
    unsigned long pid;
    unsigned long long start;
    char end;
    if (sscanf(name, "%lu/%llu%c", &pid, &start, &end) != 2 || !pid) return false;
    HANDLE h = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, pid);
    bool alive = h && start_of(h) == start;
    if (h) CloseHandle(h);
    return alive;
}
