/* epoll.h: as on Windows, over kqueue. */
#ifndef CHIMERE_BASE_MAC_SYS_EPOLL_H
#define CHIMERE_BASE_MAC_SYS_EPOLL_H

#include "base/win/sys/epoll.h"

#endif
