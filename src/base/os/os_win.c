/* os_win.c: os.h for Windows. */
#include "base/os/os.h"

#include <io.h>
#include <windows.h>

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

bool os_is_absolute(const char *path) {
    return *path == '/' || *path == '\\' || (*path && path[1] == ':');
}
