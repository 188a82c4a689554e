/* poll.h: WSAPoll. */
#ifndef CHIMERE_BASE_WIN_POLL_H
#define CHIMERE_BASE_WIN_POLL_H

#include <sys/socket.h>

#define poll(fds, n, ms) WSAPoll(fds, n, ms)

#endif
