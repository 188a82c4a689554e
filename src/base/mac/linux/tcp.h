/* tcp.h: statistics of a connection, by the names of Linux. */
#ifndef CHIMERE_BASE_MAC_LINUX_TCP_H
#define CHIMERE_BASE_MAC_LINUX_TCP_H

#include <netinet/tcp.h>

#define TCP_INFO TCP_CONNECTION_INFO
#define tcp_info tcp_connection_info
#define tcpi_bytes_received tcpi_rxbytes

#endif
