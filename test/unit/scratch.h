/* scratch.h: a folder of a test program's own, made before its tests and removed after them. Pass
 * scratch_make and scratch_drop to cmocka_run_group_tests. */
#ifndef CHIMERE_TEST_SCRATCH_H
#define CHIMERE_TEST_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

static char scratch[32];

static int scratch_make(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "scratch.XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int scratch_drop(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command);
}

#endif
