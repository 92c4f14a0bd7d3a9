#pragma once

// Three that feed one of a daemon's sockets each, connection after connection.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/hostile_client.h"
#include "tests/e2e/hostile_peer.h"
#include "tests/e2e/mutator.h"

namespace tern::e2e {

class SocketFuzzer {
 public:
  SocketFuzzer(const DaemonProcess& daemon, std::uint64_t seed) : daemon_(daemon), mutator_(seed) {}
  virtual ~SocketFuzzer() = default;

  // One connection, and how many inputs the daemon was given on it.
  virtual std::uint64_t round() = 0;
  // What the daemon should not have done; empty if nothing.
  const std::string& problem() const noexcept { return problem_; }

 protected:
  const DaemonProcess& daemon_;
  Mutator mutator_;
  std::string problem_;
};

// Lines of the control socket: requests, things like requests, and clients that stop half-way.
class ControlFuzzer final : public SocketFuzzer {
 public:
  using SocketFuzzer::SocketFuzzer;
  std::uint64_t round() override;

 private:
  Fd connect() const;
  std::string requests(std::uint64_t count);
  std::uint64_t converse(const Fd& socket, std::string_view text);
  void judge(std::string_view answer);

  std::deque<Fd> held_;  // half a line sent, or answers never read
};

// Packets, descriptors, rings and entries of a client. `group_id` is that of a job of others.
class ClientFuzzer final : public SocketFuzzer {
 public:
  ClientFuzzer(const DaemonProcess& daemon, std::uint64_t seed, std::string group_id)
      : SocketFuzzer(daemon, seed), group_id_(std::move(group_id)) {}
  std::uint64_t round() override;

 private:
  bool greet(HostileClient& client);
  // False when the daemon has closed the connection.
  bool send_packet(HostileClient& client);
  bool send(HostileClient& client, std::vector<std::byte> packet);
  void set_block(HostileClient& client, shm::SubmitEntry& entry);
  std::uint64_t submit_entries(HostileClient& client);
  void scribble(HostileClient& client);

  std::string group_id_;
  std::uint64_t group_ = 0;  // of the client at work
  std::uint64_t tensor_ = 0;
  bool has_blocks_ = false;                          // it was declared with client_blocks
  std::deque<std::unique_ptr<HostileClient>> held_;  // connected, and silent
};

// Hellos and frames at the port for peers. `uid` is that of a group of others. `tls`, where it is
// not null, is what a daemon of this cluster has: what comes inside is no better for it.
class PeerFuzzer final : public SocketFuzzer {
 public:
  PeerFuzzer(const DaemonProcess& daemon, std::uint64_t seed, std::string uid,
             SSL_CTX* tls = nullptr)
      : SocketFuzzer(daemon, seed), uid_(std::move(uid)), tls_(tls) {}
  std::uint64_t round() override;

 private:
  std::string message();
  std::vector<std::byte> conductor_frame(HostilePeer& peer);
  std::vector<std::byte> lane_frame();

  std::string uid_;
  SSL_CTX* tls_;
  std::uint64_t node_ = 0;
  std::uint64_t sequence_ = 0;  // of the lane's link at work
  std::deque<std::unique_ptr<HostilePeer>> held_;
};

}  // namespace tern::e2e
