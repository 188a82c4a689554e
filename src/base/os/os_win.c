/* os_win.c: os.h for Windows. */
#include "base/os/os.h"

#include <io.h>
#include <windows.h>

#include "base/win/path_win.h"

long os_cores(void) { return (long)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS); }

uint64_t os_memory_bytes(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullTotalPhys : 0;
}

size_t os_page_bytes(void) {
    SYSTEM_INFO i;
    GetSystemInfo(&i);
    return i.dwPageSize;
}

uint64_t os_allow_files(uint64_t n) { return n; } /* sockets are not files there */

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

void os_host_name(char *out, size_t out_size) {
    DWORD n = (DWORD)out_size;
    if (!GetComputerNameA(out, &n)) out[0] = 0;
}

void os_version(char *out, size_t out_size) {
    /* GetVersion reports what the manifest asks for, ntdll what is running */
    OSVERSIONINFOW v = {.dwOSVersionInfoSize = sizeof v};
    HMODULE nt = GetModuleHandleW(L"ntdll.dll");
    LONG(WINAPI * version)
    (OSVERSIONINFOW *) =
        nt ? (LONG(WINAPI *)(OSVERSIONINFOW *))(void *)GetProcAddress(nt, "RtlGetVersion") : NULL;
    if (version) version(&v);
    bool wine = nt && GetProcAddress(nt, "wine_get_version");
    snprintf(out, out_size, "Windows %lu.%lu.%lu x86_64%s", v.dwMajorVersion, v.dwMinorVersion,
             v.dwBuildNumber, wine ? " (Wine)" : "");
}

bool os_is_terminal(FILE *f) {
    DWORD mode;
    return GetConsoleMode((HANDLE)_get_osfhandle(fileno(f)), &mode) != 0;
}

void os_sleep_ms(int32_t ms) { Sleep((DWORD)ms); }

bool os_hold_streams(void) { return true; } /* missing streams have no descriptor to be reused */

void os_wait_word(_Atomic uint32_t *a, uint32_t seen) {
    WaitOnAddress((void *)a, &seen, 4, INFINITE);
}

void os_wake_word(_Atomic uint32_t *a) { WakeByAddressAll((void *)a); }

bool os_is_absolute(const char *path) {
    return *path == '/' || *path == '\\' || (*path && path[1] == ':');
}

bool os_program(char *out, size_t out_size) {
    wchar_t wide[WIN_PATH];
    DWORD n = GetModuleFileNameW(NULL, wide, WIN_PATH);
    return n && n < WIN_PATH && win_narrow(wide, out, out_size);
}

void os_run_again(char *const *argv) { (void)argv; } /* a process cannot be replaced */
