#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/conductor/outlets.h"
#include "daemon/lane/lane.h"
#include "daemon/service/log_limit.h"
#include "daemon/service/turn_meter.h"

namespace tern::daemon {

// How long turns take, the conductor's own and those of lanes, which may not log. The log says
// which were too long, and in what.
class TurnWatch {
 public:
  // What is given outlives the watch.
  TurnWatch(const Clock& clock, const CounterPlace& counters, std::vector<Lane*> lanes);

  // As TurnMeter's.
  void count_in(ConductorCounters& counters) { own_.count_in(counters); }
  void subtract(ProcessorWait& wait) { own_.subtract(wait); }
  void begin() { own_.begin("event loop"); }
  void step(const char* name) { own_.step(name); }
  // What the conductor's turn was.
  const TurnMeter::Turn& end();

  TurnMeter::Turn longest() const { return own_.longest(); }
  // Of each thread since the start.
  std::string longest_text() const;

 private:
  void tell(const std::string& thread, const TurnMeter::Turn& turn);

  const Clock& clock_;
  const CounterPlace& counters_;
  std::vector<Lane*> lanes_;
  TurnMeter own_;
  std::vector<std::uint64_t> told_;  // by lane: how many were too long
  LogLimit<std::string> limit_;
};

}  // namespace tern::daemon
