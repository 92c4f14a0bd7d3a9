#pragma once

#include <cstdint>

namespace tern::net {

// What all TCP sockets of this process have sent, by the kernel's count.
struct SentOverTcp {
  std::uint64_t bytes = 0, packets = 0;
};
SentOverTcp sent_over_tcp();

}  // namespace tern::net
