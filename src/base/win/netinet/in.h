/* in.h: part of winsock2.h. */
#ifndef CHIMERE_BASE_WIN_NETINET_IN_H
#define CHIMERE_BASE_WIN_NETINET_IN_H

#include <sys/socket.h>

#endif
