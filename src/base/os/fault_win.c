#include "base/os/fault.h"

void fault_handle(bool (*repair)(uintptr_t at)) { (void)repair; } /* mapped files cannot be cut */
