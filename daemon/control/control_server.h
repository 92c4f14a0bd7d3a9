#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/control/control_verbs.h"
#include "daemon/service/disposal.h"

namespace boost::asio {
class io_context;
}

namespace tern::daemon {

struct ControlOptions {
  std::string path;
  std::uint32_t mode = 0660;
  // One more is told so and closed. Root and the daemon's own user get in when others have taken
  // all places.
  std::size_t max_clients = 32;
  std::size_t max_clients_per_user = 8;
  // For whom the connections of a user are counted; empty: for the user.
  std::function<std::uint32_t(std::uint32_t)> account_of;
  // Of one answer. A client's next request is read only when it has taken the answer to the one
  // before, so that the clients times max_answer_bytes bound what is queued.
  std::size_t max_answer_bytes = std::size_t{16} * 1024 * 1024;
  // Neither a whole request nor the taking of a whole answer, or of a piece of one that is made
  // while it is sent, may last longer.
  std::chrono::milliseconds idle_timeout{30'000};
};

// The longest request, with its line feed; part of the protocol.
inline constexpr std::size_t kMaxControlRequestBytes = std::size_t{64} * 1024;

// Serves line-delimited JSON on a Unix stream socket (docs/control-protocol.md). Everything happens
// in handlers of the io_context; nothing blocks.
class ControlServer {
 public:
  // A socket file that nobody listens on is replaced; anything else at the path is left alone and
  // is Errc::already_exists. REQUIRES: io, handler and disposal outlive the server, and io is run
  // by one thread, which is also the one that destroys the server.
  static Result<std::unique_ptr<ControlServer>> create(boost::asio::io_context& io,
                                                       const ControlOptions& options,
                                                       ControlVerbs& handler, Disposal& disposal);

  // Closes all connections and unlinks the socket, unless another has taken its place.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  std::size_t client_count() const noexcept;

 private:
  class Impl;
  explicit ControlServer(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

}  // namespace tern::daemon
