/* address.h: decides which network addresses are public, by a table of the blocks that IANA reserves. No I/O. */
#ifndef CHIMERE_NET_ADDRESS_H
#define CHIMERE_NET_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* Returns true for global unicast IPv4 and IPv6 addresses. An address that contains an IPv4 address (mapped, NAT64,
 * 6to4) is judged by that. All other addresses and families return false. */
bool address_is_public(const struct sockaddr *a, socklen_t n);
bool address_is_loopback(const struct sockaddr *a, socklen_t n); /* of this machine alone */

#endif
