/* fault.h: mapped pages that cannot be read. */
#ifndef CHIMERE_BASE_OS_FAULT_H
#define CHIMERE_BASE_OS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on calls repair with the address of a mapped page that cannot be read, on the thread that read it, in a signal
 * handler; if it returns false, or where there is no such signal, the process ends as before. */
void fault_handle(bool (*repair)(uintptr_t at));

#endif
