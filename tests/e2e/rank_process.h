#pragma once

// One rank: a process of its own (e2e_rank) that does what it is told, line by line, through
// libtern. e2e_rank.cc lists the commands.

#include <memory>
#include <string>
#include <vector>

#include "client_lib/include/tern/tern.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/process.h"

namespace tern::e2e {

// What a rank answered: "ok <fields>" or "error <number> <sentence>".
struct Reply {
  int code = -1;     // tern_status; -1: no answer within patience, or the process has ended
  std::string text;  // the fields, or the sentence

  bool ok() const noexcept { return code == TERN_OK; }
  // The value of key=value in the fields.
  std::string field(const std::string& key) const;
  std::int64_t number(const std::string& key) const;
};
std::ostream& operator<<(std::ostream& out, const Reply& reply);

class RankProcess {
 public:
  // `user` other than root's: the process is that user's, for which the test must be root, and the
  // daemon's folder open to him (see open_to_all()).
  explicit RankProcess(const DaemonProcess& daemon, uid_t user = 0);

  void tell(const std::string& command);
  Reply reply(std::chrono::milliseconds patience = kPatience);
  Reply ask(const std::string& command) {
    tell(command);
    return reply();
  }
  // Connected as `job`.
  Reply connect(const std::string& job = "test", std::uint64_t arena_bytes = 64 << 20);
  Process& process() noexcept { return process_; }
  const DaemonProcess& daemon() const noexcept { return *daemon_; }

 private:
  const DaemonProcess* daemon_;
  Process process_;
};

// The ranks of one group, in the order of their numbers.
class Ranks {
 public:
  Ranks() = default;
  // ranks_per_node[i] processes on daemon i: ranks are numbered node by node. Connects them all.
  Ranks(Cluster& cluster, const std::vector<int>& ranks_per_node, const std::string& job = "test",
        uid_t user = 0);

  // Mints an id at the daemon of rank `mints_at` and joins as group `name`. Empty, or what went
  // wrong.
  std::string join(const std::string& name = "g", const std::string& options = "",
                   std::size_t mints_at = 0);
  // With the id of the join before, for a further epoch.
  std::string rejoin(const std::string& name = "g", const std::string& options = "");

  void tell_all(const std::string& command);
  std::vector<Reply> replies();
  std::vector<Reply> ask_all(const std::string& command) {
    tell_all(command);
    return replies();
  }
  RankProcess& operator[](std::size_t rank) { return *ranks_[rank]; }
  std::size_t size() const noexcept { return ranks_.size(); }
  const std::string& id() const noexcept { return id_; }
  void replace(std::size_t rank, Cluster& cluster, std::size_t node,
               const std::string& job = "test");

 private:
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::string id_;
};

// Empty if all are ok, no value is wrong and all have the same checksum; else what is not so.
std::string disagreement(const std::vector<Reply>& replies);

}  // namespace tern::e2e
