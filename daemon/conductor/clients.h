#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "daemon/conductor/client.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/outlets.h"

namespace tern::daemon {

// For who may wait: seals the file, unless its owner has left it before its turn came.
Disposal::Some seal_later(const std::shared_ptr<Fd>& file,
                          const std::shared_ptr<std::atomic<Sealing>>& outcome);

// The connected processes: from their connection, through their hello, to the last use of their
// memory. Of groups and tensors it knows nothing.
class Clients {
 public:
  using Map = std::map<std::uint64_t, std::unique_ptr<Client>>;

  // REQUIRES: the settings outlive this; a change of them is seen.
  Clients(const ConductorSettings& settings, const Outlets& outlets);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // Null: there is none.
  Client* find(std::uint64_t id) const;
  // REQUIRES: there is one.
  const Client& at(std::uint64_t id) const { return *clients_.at(id); }
  const Map& all() const { return clients_; }

  // One that is connected and has not said hello.
  std::unique_ptr<Client> make(std::uint64_t id, shm::PeerCredentials credentials) const;
  void add(std::unique_ptr<Client> client);

  // What is wrong with the hello itself, or with who says it.
  Status check_hello(const shm::HelloPacket& packet) const;
  // Empty if the user may connect.
  std::string access_problem(const shm::PeerCredentials& credentials) const;
  // Makes the client's memory and welcomes it.
  // REQUIRES: check_hello() found nothing.
  Status open(Client& client, const shm::HelloPacket& packet);
  // Lanes, and the conductor, touch a client's memory only after the daemon has sealed it
  // (shm::seal). Sealing waits for as long as the client punches holes, so that other threads do
  // it. The first request says that the client has mapped its memory: a library maps it before it
  // asks for anything. False: the request waits by hold().
  // REQUIRES: the client has memory.
  bool admit(Client& client);
  // Keeps a request until the client is admitted and what its requests before it wait for is there.
  // False: so many may not wait.
  static bool hold(Client& client, std::span<const std::byte> request);
  // The same of the first one, for which a log is read (Client::reading).
  // REQUIRES: no request waits.
  void hold_for_log(Client& client, std::span<const std::byte> request);
  // One whose requests wait no longer for a helper, or null. It is told of once for its sealing and
  // for each log, and once more after each hold_rest().
  Client* take_ready();
  // What it has held, which waits no longer.
  static std::vector<std::vector<std::byte>> take_held(Client& client) noexcept {
    return std::exchange(client.held, {});
  }
  // Those of its requests that there was no time for, after other clients have had theirs. They are
  // behind what it has held since.
  void hold_rest(Client& client, std::vector<std::vector<std::byte>> requests);

  // Those that have not said hello in time: they hold descriptors and count as clients.
  std::vector<Client*> silent() const;
  // When the next of them is due, or a seal is to be looked at.
  std::uint64_t next_deadline_ns() const;

  // The client is gone: its memory is freed when all lanes have let go of it, and it is forgotten.
  // One that has no memory is forgotten at once.
  void let_go(Client& client, const char* why);
  // Where pages cannot be left absent, the daemon pays for them; the log says so once.
  void tell_who_pays(const Status& left_absent);
  // For whom it is counted.
  std::uint32_t account_of(const Client& client) const;
  // Frees a region of the client that no lane uses.
  void dispose(Client& client, std::unique_ptr<ClientRegion> region);
  // A lane has let go of the memory.
  void on_dropped(const ClientMemory& memory);

 private:
  static bool has_help(const Client& client);  // that has not ended
  // No lane uses its memory.
  void forget(Map::iterator gone);
  UserLog::Line line_about(const Client& client) const;
  // Spinning helps only while every lane and every client can have a core of its own.
  void say_whether_to_spin();

  const ConductorSettings& settings_;
  Outlets outlets_;
  Map clients_;
  // Those for whom helpers work, and whose requests are left: nobody has been told of them.
  std::vector<std::uint64_t> waiting_;
  bool said_who_pays_ = false;
};

}  // namespace tern::daemon
