#pragma once

#include <cstdint>
#include <optional>

namespace tern::net {

// The user of the process that made the other end of a TCP connection within this machine, as the
// kernel knows it (sock_diag(7)). None: the other end is on another machine or in another network
// namespace, is closed, or the kernel does not say. Never blocks.
std::optional<std::uint32_t> user_of_other_end(int fd);

}  // namespace tern::net
