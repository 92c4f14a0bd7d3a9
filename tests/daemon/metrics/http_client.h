#pragma once

// One connection to an HTTP server of this machine.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace tern::daemon {

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const void* const generic = &address;
    EXPECT_EQ(::connect(socket_.get(), static_cast<const sockaddr*>(generic), sizeof address), 0);
  }
  void say(std::string_view text) const {
    EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // All that comes until the server closes.
  std::string read_all() const {
    std::string answer;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::recv(socket_.get(), piece.data(), piece.size(), 0)) > 0;) {
      answer.append(piece.data(), static_cast<std::size_t>(got));
    }
    return answer;
  }

 private:
  Fd socket_;
};

// The whole answer to one request, its head included.
inline std::string http_get(std::uint16_t port, const std::string& path) {
  const HttpClient client(port);
  client.say("GET " + path + " HTTP/1.0\r\n\r\n");
  return client.read_all();
}

}  // namespace tern::daemon
