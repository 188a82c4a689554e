/* address.h: which network addresses are public. A table of the blocks that IANA reserves; no I/O. */
#ifndef CHIMERE_NET_ADDRESS_H
#define CHIMERE_NET_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* True for global unicast IPv4 and IPv6. Addresses that carry an IPv4 address inside (mapped, NAT64,
 * 6to4) are judged by it. Everything else, other families included, is false. */
bool address_is_public(const struct sockaddr *a, socklen_t n);

#endif
