/* await.h: waits for what another thread or process does. A test that passes waits no longer than that takes, so these
 * limits are for machines that are slow by chance. */
#ifndef CHIMERE_TEST_AWAIT_H
#define CHIMERE_TEST_AWAIT_H

#include <unistd.h>

enum { AWAIT_MS = 60000 };

/* Until the condition holds, or AWAIT_MS have passed: an assertion of the condition follows. */
#define AWAIT(condition)                                                                           \
    for (int await_ms = 0; !(condition) && await_ms < AWAIT_MS; await_ms++) usleep(1000)

#endif
