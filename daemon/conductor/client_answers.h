#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/errc.h"
#include "shm/packet_socket.h"

namespace tern::daemon {

// How the conductor answers its clients: over Unix sockets, or in a simulator by calls.
class ClientPort {
 public:
  virtual ~ClientPort() = default;
  virtual void reply(std::uint64_t client, std::span<const std::byte> packet,
                     std::span<const int> descriptors) = 0;
  // The conductor has no more to say to this client; its socket is to be closed.
  virtual void disconnect(std::uint64_t client) = 0;
};

// What every part says to clients.
class ClientAnswers {
 public:
  // REQUIRES: the port outlives this.
  explicit ClientAnswers(ClientPort& port) : port_(port) {}

  // What does not fit of the text is cut.
  void done(std::uint64_t client, std::uint64_t request, Errc code, const std::string& text);

  template <typename Packet>
  void send(std::uint64_t client, const Packet& packet, std::span<const int> descriptors = {}) {
    port_.reply(client, shm::packet_bytes(packet), descriptors);
  }

  void disconnect(std::uint64_t client) { port_.disconnect(client); }

 private:
  ClientPort& port_;
};

}  // namespace tern::daemon
