#include "net/tcp/socket_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/fd.h"

namespace tern::net {
namespace {

struct Request {
  nlmsghdr header{};
  inet_diag_req_v2 what{};
};

// Both ends of the connection, as the other one sees it.
bool fill(int fd, inet_diag_sockid& id, std::uint8_t& family) {
  sockaddr_storage here{}, there{};
  socklen_t here_size = sizeof here, there_size = sizeof there;
  if (::getsockname(fd, static_cast<sockaddr*>(static_cast<void*>(&here)), &here_size) != 0 ||
      ::getpeername(fd, static_cast<sockaddr*>(static_cast<void*>(&there)), &there_size) != 0) {
    return false;
  }
  if (here.ss_family == AF_INET) {
    const auto& near = *static_cast<const sockaddr_in*>(static_cast<const void*>(&here));
    const auto& far = *static_cast<const sockaddr_in*>(static_cast<const void*>(&there));
    family = AF_INET;
    id.idiag_sport = far.sin_port;
    id.idiag_dport = near.sin_port;
    std::memcpy(id.idiag_src, &far.sin_addr, sizeof far.sin_addr);
    std::memcpy(id.idiag_dst, &near.sin_addr, sizeof near.sin_addr);
    return true;
  }
  if (here.ss_family != AF_INET6) return false;
  const auto& near = *static_cast<const sockaddr_in6*>(static_cast<const void*>(&here));
  const auto& far = *static_cast<const sockaddr_in6*>(static_cast<const void*>(&there));
  id.idiag_sport = far.sin6_port;
  id.idiag_dport = near.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&far.sin6_addr)) {
    // The other end is a socket of IPv4.
    constexpr std::size_t kPrefix = 12;
    family = AF_INET;
    std::memcpy(id.idiag_src, far.sin6_addr.s6_addr + kPrefix, sizeof(in_addr));
    std::memcpy(id.idiag_dst, near.sin6_addr.s6_addr + kPrefix, sizeof(in_addr));
    return true;
  }
  family = AF_INET6;
  std::memcpy(id.idiag_src, &far.sin6_addr, sizeof far.sin6_addr);
  std::memcpy(id.idiag_dst, &near.sin6_addr, sizeof near.sin6_addr);
  return true;
}

}  // namespace

std::optional<std::uint32_t> user_of_other_end(int fd) {
  Request request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.what.sdiag_protocol = IPPROTO_TCP;
  request.what.idiag_states = ~std::uint32_t{0};
  request.what.id.idiag_cookie[0] = request.what.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (!fill(fd, request.what.id, request.what.sdiag_family)) return std::nullopt;
  const Fd diag(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!diag) return std::nullopt;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const ssize_t sent =
      ::sendto(diag.get(), &request, sizeof request, MSG_DONTWAIT,
               static_cast<const sockaddr*>(static_cast<const void*>(&kernel)), sizeof kernel);
  if (sent != static_cast<ssize_t>(sizeof request)) return std::nullopt;
  // The kernel answers within sendto().
  alignas(nlmsghdr) std::array<std::byte, 1024> bytes{};
  const ssize_t count = ::recv(diag.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  nlmsghdr header{};
  inet_diag_msg answer{};
  constexpr std::size_t kBody = NLMSG_HDRLEN;
  if (count < static_cast<ssize_t>(kBody + sizeof answer)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  std::memcpy(&answer, bytes.data() + kBody, sizeof answer);
  // Of a socket without a process the kernel says root.
  const bool has_process = answer.idiag_state == TCP_ESTABLISHED ||
                           answer.idiag_state == TCP_CLOSE_WAIT ||
                           answer.idiag_state == TCP_FIN_WAIT1;
  if (!has_process || answer.idiag_inode == 0) return std::nullopt;
  return answer.idiag_uid;
}

}  // namespace tern::net
