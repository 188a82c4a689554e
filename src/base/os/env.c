#include "base/os/env.h"

#include <stdlib.h>

#include "base/err.h"

int env_set(const char *name, const char *value) {
    int rc = value ? setenv(name, value, 1) : unsetenv(name);
    return rc ? CHIMERE_ENOMEM : 0;
}
