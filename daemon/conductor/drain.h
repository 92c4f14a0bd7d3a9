#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "daemon/access/scope.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/membership/coordinator.h"

namespace tern::daemon {

// The end of a daemon that waits for its jobs, as before an upgrade: new jobs are refused, those
// that run go on with all they need, and the daemon ends when the last has gone or at a deadline.
class Drain {
 public:
  // What is waited for. It outlives this.
  struct Jobs {
    const Clients& clients;
    const Joins& joins;
    const Groups& groups;
    const Coordinator& coordinator;  // whose groups end with this daemon, wherever their ranks are
  };

  // `self`: how the report names this daemon.
  Drain(const Clock& clock, const wire::NodeId& self, const Jobs& jobs)
      : clock_(clock), self_(self), jobs_(jobs) {}

  // Begins, or sets another deadline.
  void begin(std::uint64_t timeout_ns) { deadline_ns_ = clock_.now_ns() + timeout_ns; }
  void cancel() { deadline_ns_ = 0; }
  // The daemon ends now: nothing new is taken of anybody.
  void stop() { is_stopping_ = true; }
  bool is_on() const { return deadline_ns_ != 0; }
  // Nobody is here, and nobody elsewhere needs this daemon.
  bool is_idle() const;
  // Nobody is left, or the time is up.
  bool is_over() const;
  std::uint64_t next_deadline_ns() const { return is_on() ? deadline_ns_ : ~std::uint64_t{0}; }

  // What one who brings a new job is told; empty while new jobs are taken.
  std::string refusal() const;
  // The same for who says hello: while a group gathers, its other ranks may yet come.
  std::string hello_refusal() const;
  // The same for a client's join to the group of this uid: a job that had a group before goes on, and
  // a group for which ranks wait, or which runs, takes all of its ranks.
  std::string join_refusal(const Client& client, const std::string& uid) const;

  // What is waited for, in one line, and for programs (docs/control-protocol.md).
  std::string text() const;
  nlohmann::json report() const;

 private:
  std::size_t clients() const;

  const Clock& clock_;
  wire::NodeId self_;
  Jobs jobs_;
  std::uint64_t deadline_ns_ = 0;  // 0: off
  bool is_stopping_ = false;
};

}  // namespace tern::daemon
