#pragma once

// Who has opened a connection, as far as an address says it.

#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <vector>

namespace tern::net {

// What one attacker has many of counts as one: the addresses of this machine, and the 2^64 of a
// network of IPv6. An IPv4 address inside IPv6 is itself.
boost::asio::ip::address source_of(const boost::asio::ip::address& address);

// Of connections, oldest first: the place of the oldest one of the source that has most of them, so
// that no source makes another one lose what it has. REQUIRES: there are some.
std::size_t oldest_of_heaviest(const std::vector<boost::asio::ip::address>& sources);

}  // namespace tern::net
