#include "net/tcp/delivery_rate.h"

// The kernel's header, because that of the C library ends before the fields needed here; the two
// cannot be included together.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace tern::net {

DeliveryRate socket_delivery_rate(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  // An older kernel fills in less.
  if (bytes < offsetof(tcp_info, tcpi_delivery_rate) + sizeof(info.tcpi_delivery_rate)) return {};
  return {static_cast<double>(info.tcpi_delivery_rate), info.tcpi_delivery_rate_app_limited != 0,
          std::uint64_t{info.tcpi_min_rtt} * 1000, info.tcpi_bytes_acked,
          std::uint64_t{info.tcpi_busy_time} * 1000};
}

}  // namespace tern::net
