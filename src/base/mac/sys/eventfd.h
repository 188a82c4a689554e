/* eventfd.h: a descriptor that becomes readable when it is written to. */
#ifndef CHIMERE_BASE_MAC_SYS_EVENTFD_H
#define CHIMERE_BASE_MAC_SYS_EVENTFD_H

enum { EFD_CLOEXEC = 0 };

int eventfd(unsigned value, int flags); /* value: 0 */

#endif
