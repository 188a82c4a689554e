/* mman_win.c: sys/mman.h. */
#include <sys/mman.h>

#include <errno.h>
#include <stdint.h>
#include <windows.h>

#include "base/win/path_win.h"

void *mmap(void *at, size_t n, int access, int kind, int fd, off_t offset) {
    (void)at;
    void *p;
    if (kind & MAP_FIXED) { /* a view of a file cannot be replaced in part */
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (kind & MAP_ANONYMOUS) {
        p = VirtualAlloc(NULL, n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    } else {
        DWORD page = access & PROT_WRITE ? PAGE_READWRITE : PAGE_READONLY,
              how = access & PROT_WRITE ? FILE_MAP_WRITE : FILE_MAP_READ;
        HANDLE map = CreateFileMappingW((HANDLE)_get_osfhandle(fd), NULL, page, 0, 0, NULL);
        p = map ? MapViewOfFile(map, how, (DWORD)((uint64_t)offset >> 32), (DWORD)offset, n) : NULL;
        if (map) CloseHandle(map); /* the view keeps it */
    }
    if (p) return p;
    if (win_errno() == EIO) errno = ENOMEM;
    return MAP_FAILED;
}

int munmap(void *p, size_t n) {
    (void)n;
    MEMORY_BASIC_INFORMATION m;
    BOOL ok = VirtualQuery(p, &m, sizeof m) != 0;
    if (ok) ok = m.Type == MEM_PRIVATE ? VirtualFree(p, 0, MEM_RELEASE) : UnmapViewOfFile(p);
    if (!ok) errno = EINVAL;
    return ok ? 0 : -1;
}

int madvise(void *p, size_t n, int advice) {
    /* Unlocking pages that are not locked takes them out of the working set. */
    if (advice == MADV_DONTNEED) VirtualUnlock(p, n);
    return 0;
}

int mprotect(void *p, size_t n, int access) {
    DWORD before;
    return VirtualProtect(p, n, access & PROT_WRITE ? PAGE_READWRITE : PAGE_READONLY, &before) ? 0
                                                                                               : -1;
}

int mincore(void *p, size_t n, unsigned char *out) {
    (void)p, (void)n, (void)out;
    errno = ENOSYS;
    return -1;
}
