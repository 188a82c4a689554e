/* tcp.h: statistics of a connection, which Windows does not report under this name: getsockopt fails. */
#ifndef CHIMERE_BASE_WIN_LINUX_TCP_H
#define CHIMERE_BASE_WIN_LINUX_TCP_H

#include <stdint.h>

enum { TCP_INFO = 0x7fff };
struct tcp_info {
    uint64_t tcpi_bytes_received;
};

#endif
