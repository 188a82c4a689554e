/* eventfd.h: see epoll.h. A file that includes this writes to events, and closes them, alone. */
#ifndef CHIMERE_BASE_WIN_SYS_EVENTFD_H
#define CHIMERE_BASE_WIN_SYS_EVENTFD_H

#include <sys/epoll.h>

#define write(event, p, n) (epoll_signal(event), (int)((void)(p), (n)))
#define close epoll_close

#endif
