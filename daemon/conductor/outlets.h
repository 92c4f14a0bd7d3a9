#pragma once

#include "base/clock.h"
#include "daemon/conductor/client_answers.h"
#include "daemon/conductor/control_post.h"
#include "daemon/conductor/lane_commands.h"
#include "daemon/metrics/counter_table.h"
#include "daemon/service/disposal.h"
#include "daemon/service/user_log.h"

namespace tern::daemon {

// Where the conductor counts: in memory of its own, until it is told of the counters file.
class CounterPlace {
 public:
  CounterPlace() = default;
  CounterPlace(const CounterPlace&) = delete;
  CounterPlace& operator=(const CounterPlace&) = delete;

  // Before anything has been counted. REQUIRES: `counters` outlives this.
  void move_to(ConductorCounters& counters) { counters_ = &counters; }

  ConductorCounters* operator->() const { return counters_; }
  ConductorCounters& operator*() const { return *counters_; }

 private:
  ConductorCounters own_;
  ConductorCounters* counters_ = &own_;
};

// The ways out of the conductor, which all its parts share.
struct Outlets {
  const Clock& clock;
  const CounterPlace& counters;
  ClientAnswers& answers;
  LaneCommands& lanes;
  ControlPost& post;
  Disposal& disposal;
  Disposal& sealing;  // apart: a user whose things are stuck has new clients all the same
  Disposal& reading;  // of logs of choices
  UserLog& log;
};

}  // namespace tern::daemon
