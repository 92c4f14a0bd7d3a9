#include "daemon/service/turn_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tern::daemon {
namespace {

// The kernel is asked so seldom, and about no turn shorter than the first.
constexpr std::uint64_t kAskNs = 1'000'000;
constexpr std::uint64_t kAskPausingNs = 10'000'000;
// A shorter turn that found nothing to do does not count.
constexpr std::uint64_t kIdleNs = kTurnBuckets.front().up_to_ns;

// From what the kernel said before to what it says now; it may not say anything any more.
std::uint64_t growth(std::uint64_t before, std::uint64_t now) {
  return now - std::min(now, before);
}

}  // namespace

void TurnMeter::begin(const char* step, std::uint64_t now_ns) noexcept {
  if (is_open_) return;
  is_open_ = true;
  begun_ns_ = step_begun_ns_ = now_ns;
  step_ = longest_step_ = step;
  longest_step_ns_ = allowed_ns_ = 0;
  if (pauses_) {
    if (turns_ns_ >= kAskPausingNs) ask(now_ns);
  } else if (!ask(now_ns) && wait_ != nullptr) {
    said_.sleeps = wait_->sleeps();
  }
}

void TurnMeter::pause(std::uint64_t now_ns) noexcept {
  pauses_ = true;
  ask(now_ns);
  ++paused_;
}

bool TurnMeter::ask(std::uint64_t now_ns) noexcept {
  if (wait_ == nullptr || now_ns - asked_ns_ < (pauses_ ? kAskPausingNs : kAskNs)) return false;
  asked_ns_ = now_ns;
  turns_ns_ = paused_ = 0;
  said_ = wait_->times();
  return true;
}

void TurnMeter::step(const char* name, std::uint64_t now_ns) noexcept {
  if (!is_open_) return begin(name, now_ns);
  end_step(now_ns);
  step_ = name;
  step_begun_ns_ = now_ns;
}

void TurnMeter::end_step(std::uint64_t now_ns) noexcept {
  const std::uint64_t took_ns = now_ns - step_begun_ns_;
  if (took_ns <= longest_step_ns_) return;
  longest_step_ns_ = took_ns;
  longest_step_ = step_;
}

const TurnMeter::Turn& TurnMeter::end(std::uint64_t now_ns, bool has_worked) noexcept {
  last_ = {};
  if (!is_open_) return last_;
  is_open_ = false;
  end_step(now_ns);
  std::uint64_t ns = now_ns - begun_ns_;
  turns_ns_ += ns;
  if (wait_ != nullptr && ns >= kAskNs) ns = without_waiting(now_ns);
  if (!has_worked && ns <= kIdleNs) return last_;
  last_ = {longest_step_, ns, ns > budget_ns_ + allowed_ns_};
  count(last_);
  return last_;
}

// The turn lasts until after the kernel has answered, and the answer is taken to be as old as the
// question: what is subtracted here, or from the next turn, was waited in that turn.
std::uint64_t TurnMeter::without_waiting(std::uint64_t ask_ns) noexcept {
  const ProcessorWait::Times before = std::exchange(said_, wait_->times());
  const std::uint64_t asking_ns = clock_.now_ns() - ask_ns;
  const std::uint64_t turn_ns = ask_ns + asking_ns - begun_ns_;
  const std::uint64_t waited_ns = growth(before.waited_ns, said_.waited_ns);
  // What the turn did not run: all turns' time, or this one's, but what was run since the question.
  const std::uint64_t ran_ns = growth(before.run_ns, said_.run_ns);
  const std::uint64_t not_run_ns = growth(ran_ns, pauses_ ? turns_ns_ + asking_ns : turn_ns);
  // Waited in this turn at most: what the turns did not run, or what was not before it.
  const std::uint64_t most_ns = pauses_ ? not_run_ns : growth(begun_ns_ - asked_ns_, waited_ns);
  const bool has_slept = growth(before.sleeps, said_.sleeps) > paused_;
  asked_ns_ = ask_ns;
  turns_ns_ = paused_ = 0;
  const std::uint64_t not_its_own_ns =
      has_slept ? std::min(waited_ns, most_ns) : std::max(std::min(waited_ns, most_ns), not_run_ns);
  return turn_ns - std::min(turn_ns, not_its_own_ns);
}

void TurnMeter::count(const Turn& turn) noexcept {
  const auto bucket =
      std::find_if(kTurnBuckets.begin(), kTurnBuckets.end(),
                   [&turn](const TurnBucket& one) { return turn.ns <= one.up_to_ns; });
  bump(counters_->*bucket->turns, std::uint64_t{1});
  bump(counters_->turn_ns, turn.ns);
  if (turn.ns > longest_.ns()) longest_.set(turn);
  if (!turn.is_too_long) return;
  too_long_.set(turn);  // before it is counted: who sees the number finds the turn
  bump(counters_->turns_over_budget, std::uint64_t{1});
}

std::string turn_text(std::string_view thread, const TurnMeter::Turn& turn) {
  return fmt::format("{} turn of {} ms in {}", thread, turn.ns / 1'000'000, turn.step);
}

}  // namespace tern::daemon
