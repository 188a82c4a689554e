#include <signal.h>
#include <stddef.h>

#include "base/os/fault.h"

static bool (*repair_page)(uintptr_t at);

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    if (!repair_page((uintptr_t)info->si_addr))
        signal(number, SIG_DFL); /* the access is repeated */
}

void fault_handle(bool (*repair)(uintptr_t at)) {
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    repair_page = repair;
    sigaction(SIGBUS, &act, NULL);
}
