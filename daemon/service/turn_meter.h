#pragma once

// How long a thread is away from its loop. A turn is what the thread does between two looks at
// everything that may wait for it: from waking, or from the end of the turn before, until it sleeps
// or looks again. It is made of steps, and who keeps the others waiting is the step that took
// longest.
//
// A turn's time is what the clock says less what the thread waited for a processor, because a busy
// machine is not the thread's fault; page faults and system calls that sleep are. Asking the kernel
// how long the thread has waited is a system call, too much for every turn. So the meter asks
// before a turn if it has not asked for a millisecond, and after a turn that took a millisecond.
// What it learns about a turn is the growth since it asked last, which may have been before the
// turn: of that it leaves as much in the turn as there was time between. So it never takes more
// from a turn than the thread has waited in it, and a long turn cannot hide. It takes up to a
// millisecond too little.
//
// A hypervisor may take the processor away without a word to the kernel, for tens of milliseconds.
// That is no fault of the thread's either: if the thread has not slept in the turn, the turn has
// only what the thread ran since the question. So before a turn for which it does not ask, the
// meter still asks how often the thread has slept.
//
// Between two ops a lane sleeps for a millisecond, and would ask in each. A thread that says when
// it pauses is asked for every ten, before it sleeps where that can be, and what bounds the growth
// is how long the turn had no processor. The turns since the question may have had less than the
// clock says: so as much of a turn can hide as the thread has waited in these ten milliseconds, or
// on waking before a turn in which it slept. Such a thread may have slept once for each pause. A
// sleep in a turn can hide where the thread did not sleep in a pause before it.
//
// Thread: the one that is measured, where nothing else is said. No lock, no allocation.

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bump.h"
#include "base/clock.h"
#include "daemon/service/processor_wait.h"
#include "daemon/service/turn_counters.h"

namespace tern::daemon {

class TurnMeter {
 public:
  struct Turn {
    const char* step = "";  // the one that took longest, waiting for a processor included
    std::uint64_t ns = 0;
    bool is_too_long = false;
  };

  TurnMeter(const Clock& clock, std::uint64_t budget_ns) : clock_(clock), budget_ns_(budget_ns) {}
  TurnMeter(const TurnMeter&) = delete;
  TurnMeter& operator=(const TurnMeter&) = delete;

  // Before the first turn. What is given outlives the meter.
  void count_in(TurnCounters& counters) { counters_ = &counters; }
  // Without it a turn's time is what the clock says. Asks it, so that its file is open from here on.
  void subtract(ProcessorWait& wait) {
    wait_ = &wait;
    said_ = wait.times();
  }

  // Names of steps are literals.
  void begin(const char* step, std::uint64_t now_ns) noexcept;
  void begin(const char* step) noexcept {
    if (!is_open_) begin(step, clock_.now_ns());
  }
  // What comes now is another step. A step without a turn begins one, because the thread has woken
  // for it; one of the same name goes on and reads no clock.
  void step(const char* name, std::uint64_t now_ns) noexcept;
  void step(const char* name) noexcept {
    if (!is_open_ || name != step_) step(name, clock_.now_ns());
  }
  // This turn may take so much longer.
  void allow(std::uint64_t ns) noexcept { allowed_ns_ = ns; }
  // A turn that found nothing to do counts only if it took long: one that spins has millions.
  const Turn& end(std::uint64_t now_ns, bool has_worked) noexcept;
  const Turn& end() noexcept { return end(clock_.now_ns(), true); }
  const Turn& last() const noexcept { return last_; }
  // Between turns: the thread is about to sleep. Who says so once says so always.
  void pause(std::uint64_t now_ns) noexcept;

  // Thread: any. The longest since the start, and the last that was too long.
  Turn longest() const noexcept { return longest_.get(); }
  Turn last_too_long() const noexcept { return too_long_.get(); }

 private:
  // A reader may see the time of one turn and the step of another.
  class Shown {
   public:
    void set(const Turn& turn) noexcept {
      step_.store(turn.step, std::memory_order_relaxed);
      ns_.store(turn.ns, std::memory_order_relaxed);
    }
    Turn get() const noexcept {
      return {step_.load(std::memory_order_relaxed), ns_.load(std::memory_order_relaxed), false};
    }
    std::uint64_t ns() const noexcept { return ns_.load(std::memory_order_relaxed); }

   private:
    std::atomic<const char*> step_{""};
    std::atomic<std::uint64_t> ns_{0};
  };

  // False: not yet again.
  bool ask(std::uint64_t now_ns) noexcept;
  void end_step(std::uint64_t now_ns) noexcept;
  std::uint64_t without_waiting(std::uint64_t ask_ns) noexcept;
  void count(const Turn& turn) noexcept;

  const Clock& clock_;
  const std::uint64_t budget_ns_;
  TurnCounters own_;
  TurnCounters* counters_ = &own_;
  ProcessorWait* wait_ = nullptr;
  std::uint64_t asked_ns_ = 0;  // when the kernel was asked last
  ProcessorWait::Times said_;   // and what it said
  std::uint64_t turns_ns_ = 0;  // of the turns since then
  std::uint64_t paused_ = 0;    // how often, since then
  bool pauses_ = false;

  // Of this turn.
  bool is_open_ = false;
  std::uint64_t begun_ns_ = 0;
  const char* step_ = "";
  std::uint64_t step_begun_ns_ = 0;
  const char* longest_step_ = "";
  std::uint64_t longest_step_ns_ = 0;
  std::uint64_t allowed_ns_ = 0;

  Turn last_;
  Shown longest_;
  Shown too_long_;
};

// "conductor turn of 12 ms in on_group_join".
std::string turn_text(std::string_view thread, const TurnMeter::Turn& turn);

}  // namespace tern::daemon
