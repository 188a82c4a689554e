/* inet.h: part of winsock2.h. */
#ifndef CHIMERE_BASE_WIN_ARPA_INET_H
#define CHIMERE_BASE_WIN_ARPA_INET_H

#include <sys/socket.h>

#endif
