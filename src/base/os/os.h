/* os.h: facts about this machine and process, from the operating system. */
#ifndef CHIMERE_BASE_OS_H
#define CHIMERE_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

long os_cores(void);            /* online processors; topology.h decides which to use */
uint64_t os_memory_bytes(void); /* of the machine; for the limit of this process, see cgroup.h */
size_t os_page_bytes(void);
uint64_t os_allow_files(uint64_t n); /* asks for n open files; returns how many are allowed */
int64_t os_l3_bytes(void);           /* 0: unknown */
void os_host_name(char *out, size_t out_size); /* "" if there is none */
void os_version(char *out, size_t out_size);   /* system, release, machine */
bool os_is_terminal(FILE *f);
void os_sleep_ms(int32_t ms);
/* If standard streams of this process are closed, reserves their descriptors, which later files would otherwise get. */
bool os_hold_streams(void);
/* Sleeps while *a == seen, until os_wake_word(a); may wake spuriously. */
void os_wait_word(_Atomic uint32_t *a, uint32_t seen);
void os_wake_word(_Atomic uint32_t *a); /* wakes all threads that wait */
bool os_is_absolute(const char *path);
bool os_program(char *out, size_t out_size); /* path of the running program */
/* Replaces this process by the same program with other arguments; argv ends with NULL. Open files are closed. Returns
 * only if that is not possible. On Windows the old process stays and waits for the new one, without passing on its
 * files. */
void os_run_again(char *const *argv);

#endif
