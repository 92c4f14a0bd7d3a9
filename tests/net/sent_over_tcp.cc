// By itself: the kernel's linux/tcp.h and libc's netinet/tcp.h, which Asio includes, are for
// different files.

#include "tests/net/sent_over_tcp.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tern::net {

SentOverTcp sent_over_tcp() {
  SentOverTcp sent;
  for (int fd = 0; fd < 256; ++fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    sent.bytes += info.tcpi_bytes_sent;
    sent.packets += info.tcpi_data_segs_out;
  }
  return sent;
}

}  // namespace tern::net
