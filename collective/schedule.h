#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/op.h"

namespace tern::collective {

// Which op is due for what: lists in the order in which they are served, and the running ops, whose
// chunks move, by priority and age. Never allocates after its construction.
class Schedule {
 public:
  explicit Schedule(std::size_t slots);

  // An op that is in a list already keeps its place.
  void announce(OpId id) { add(to_announce_, id); }
  void tell_submitted(OpId id) { add(to_tell_, id); }
  void fail_remote(OpId id) { add(to_fail_remote_, id); }
  void complete(OpId id) { add(to_complete_, id); }

  void run(OpId id, const Op& op);
  // After all that runs now: what is left of the op keeps nobody waiting.
  void run_last(OpId id, const Op& op);
  void stop(OpId id);
  // The op has failed: it is announced, told and run no more.
  void drop(OpId id);
  void tell_no_failures() { to_fail_remote_.clear(); }

  // These take from the lists. kNoSlot: none is due.
  OpId take_fail_remote();
  OpId take_tell_submitted();
  // The first op that may be announced.
  template <typename MaySpeak>
  OpId take_announce(MaySpeak may_speak) {
    for (std::size_t i = 0; i < to_announce_.size(); ++i) {
      if (may_speak(to_announce_[i])) return take(to_announce_, i);
    }
    return kNoSlot;
  }
  // The first op with nothing in flight.
  template <typename InFlight>
  OpId take_complete(InFlight in_flight) {
    for (std::size_t i = 0; i < to_complete_.size(); ++i) {
      if (!in_flight(to_complete_[i])) return take(to_complete_, i);
    }
    return kNoSlot;
  }

  struct Running {
    OpId id = kNoSlot;
    std::int32_t priority = 0;
    std::uint64_t order = 0;
  };
  std::span<const Running> running() const noexcept { return running_; }

 private:
  static void add(std::vector<OpId>& list, OpId id);
  static OpId take(std::vector<OpId>& list, std::size_t index);

  std::vector<OpId> to_announce_;
  std::vector<OpId> to_tell_;
  std::vector<OpId> to_fail_remote_;
  std::vector<OpId> to_complete_;
  std::vector<Running> running_;
};

}  // namespace tern::collective
