/* os.h: facts of this machine and this process that the operating system knows. */
#ifndef CHIMERE_BASE_OS_H
#define CHIMERE_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

long os_cores(void);            /* processors online; topology.h knows which of them to use */
uint64_t os_memory_bytes(void); /* of the machine; cgroup.h knows the limit of this process */
size_t os_page_bytes(void);
int64_t os_l3_bytes(void);                     /* 0: unknown */
void os_host_name(char *out, size_t out_size); /* "" if there is none */
void os_version(char *out, size_t out_size);   /* system, release, machine */
bool os_is_terminal(FILE *f);
void os_sleep_ms(int32_t ms);
/* Takes the numbers of standard streams that were closed for this process, which the next files would get. */
bool os_hold_streams(void);

#endif
