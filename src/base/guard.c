#include "base/guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/os/fault.h"
#include "base/os/os.h"

enum { MAX_GUARDS = 1024 };

/* The signal handler reads these, so no lock guards them. */
static struct {
    _Atomic uintptr_t from, end; /* from: 0: free. A page is in the map if it is below end */
    atomic_bool is_damaged;
} guards[MAX_GUARDS];

/* Called by the signal handler. */
static bool repair(uintptr_t at) {
    at = at / os_page_bytes() * os_page_bytes();
    for (int i = 0; i < MAX_GUARDS; i++) {
        uintptr_t from = atomic_load(&guards[i].from), end = atomic_load(&guards[i].end);
        if (!from || at < from || at >= end) continue;
        atomic_store(&guards[i].is_damaged, true);
        return mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                    0) != MAP_FAILED;
    }
    return false;
}

void guard_begin(void) { fault_handle(repair); }

int guard_add(const void *at, size_t n) {
    for (int i = 0; i < MAX_GUARDS; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&guards[i].from, &none, (uintptr_t)at)) continue;
        atomic_store(&guards[i].is_damaged, false);
        atomic_store(&guards[i].end, (uintptr_t)at + n);
        return i + 1;
    }
    return 0;
}

bool guard_is_damaged(int guard) { return guard && atomic_load(&guards[guard - 1].is_damaged); }

void guard_remove(int guard) {
    if (!guard) return;
    atomic_store(&guards[guard - 1].end, 0);
    atomic_store(&guards[guard - 1].from, 0);
}
