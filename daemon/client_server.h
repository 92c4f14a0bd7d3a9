#pragma once

// The Unix socket on which libtern connects: accepts, reads packets, notices death, and passes it
// all to the conductor on the conductor's thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "daemon/access/sub_users.h"
#include "daemon/conductor/conductor.h"
#include "daemon/service/disposal.h"
#include "daemon/service/log_limit.h"
#include "daemon/service/unread_sockets.h"
#include "daemon/service/user_log.h"
#include "net/event_loop.h"
#include "shm/packet_socket.h"

namespace tern::daemon {

class ClientServer final : public ClientPort {
 public:
  // What the server works with. It outlives the server, like the conductor given to start().
  struct Surroundings {
    net::EventLoop& loop;
    Disposal& disposal;
    const SubUsers& sub_users;
  };
  ClientServer(const Surroundings& around, shm::PacketListener listener);
  ~ClientServer() override;

  void start(Conductor& conductor);
  void stop_accepting();
  // Ends clients that do not read their answers, and closes sockets whose answers have been read;
  // the rest happens in the loop's handlers. Returns the amount of work done.
  int poll();

  void reply(std::uint64_t client, std::span<const std::byte> packet,
             std::span<const int> descriptors) override;
  void disconnect(std::uint64_t client) override;

 private:
  struct Connection {
    std::uint32_t account = 0;  // for whom it is counted
    shm::PacketSocket socket;
    std::uint64_t socket_watch = 0;
    std::uint64_t death_watch = 0;
    bool died = false;
    bool closing = false;          // the conductor has been told
    bool got_descriptors = false;  // it was sent some
  };

  void accept_clients();
  // Closes the connection of one who comes when there are no descriptors left.
  void turn_away();
  bool watch(std::uint64_t id, Connection& connection, Fd pidfd);
  void read_client(std::uint64_t id);
  void close(std::uint64_t id, Connection& connection);
  void unwatch(Connection& connection);
  void dispose_of(Connection& connection);
  void dispose_of(std::uint32_t account, Fd socket);
  void look_at_unread();
  void dispose_of_read();

  net::EventLoop& loop_;
  shm::PacketListener listener_;
  Disposal& disposal_;
  const SubUsers& sub_users_;
  Conductor* conductor_ = nullptr;
  std::uint64_t listen_watch_ = 0;
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t next_client_ = 1;
  Fd spare_;  // given up for a moment where there is no other, to turn somebody away
  LogLimit<std::string> limit_;
  SteadyClock clock_;
  UserLog log_{clock_};
  UnreadSockets unread_;
  std::uint64_t unread_due_ns_ = 0;  // the next look at them
};

}  // namespace tern::daemon
