/* eventfd.h: the one event that wakes epoll_wait. A file that includes this writes to events, and closes them and sets
 * of epoll, alone. */
#ifndef CHIMERE_BASE_WIN_SYS_EVENTFD_H
#define CHIMERE_BASE_WIN_SYS_EVENTFD_H

enum { EFD_CLOEXEC = 0 };

int eventfd(unsigned value, int flags); /* value: 0 */
int epoll_signal(int event);
int epoll_close(int fd); /* an epoll or an event */

#define write(event, p, n) (epoll_signal(event), (int)((void)(p), (n)))
#define close epoll_close

#endif
