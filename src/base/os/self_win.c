/* self_win.c: waiting for a word, the size of the cache, the running program: os.h for Windows. */
#include <windows.h>

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

void os_run_again(char *const *argv) { (void)argv; } /* a process cannot be replaced */
