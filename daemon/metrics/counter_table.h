#pragma once

// All that the daemon counts, and the one line that documents each: `ternctl counters`, the
// counters file, the metrics and docs/counters.md are made of these tables.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "counters/counters_file.h"
#include "daemon/lane/lane_settings.h"

namespace tern::daemon {

// Written by the conductor, read by anybody.
struct ConductorWorkCounters {
  std::atomic<std::uint64_t> clients_accepted{0}, clients_refused{0}, clients_lost{0};
  std::atomic<std::uint64_t> bad_packets{0}, joins{0}, joins_refused{0}, groups_ended{0};
  std::atomic<std::uint64_t> hellos_refused{0}, bad_control_messages{0}, state_resets{0};
  std::atomic<std::uint64_t> peers_not_trusted{0}, quota_refusals{0};
  std::atomic<std::uint64_t> bad_control_frames{0}, declarations_refused{0};
  std::atomic<std::uint64_t> conductor_longest_turn_ns{0}, lane_longest_turn_ns{0};
  // As clients say.
  std::atomic<std::uint64_t> device_reports{0}, clients_not_pinned{0};
  std::atomic<std::uint64_t> device_bytes{0}, device_pinned_bytes{0};
};

struct ConductorCounters : ConductorWorkCounters, TurnCounters {};

template <typename Counters>
struct CounterRow {
  counters::CounterText text;
  std::atomic<std::uint64_t> Counters::*value;
};

// In the order of the struct's fields.
std::span<const CounterRow<ConductorCounters>> conductor_counters();
std::span<const CounterRow<LaneCounters>> lane_counters();
// Those of the tuner, which come from its own parts: Tuning::counter_values().
std::span<const counters::CounterText> tuner_counters();
// Those of KindCounters, in the order of plan::known(). Valid as long as the process.
std::span<const counters::CounterText> kind_counters();

// Blocks of the counters file.
inline constexpr std::size_t kConductorBlock = 0, kTunerBlock = 1, kLaneBlock = 2, kKindBlock = 3;
std::vector<counters::Block> counter_blocks(std::uint32_t lanes);

// Counters made in words of the counters file.
template <typename Counters>
Counters& counters_in(std::span<std::uint64_t> words) {
  static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t) &&
                std::atomic<std::uint64_t>::is_always_lock_free);
  return *new (words.data()) Counters;
}

}  // namespace tern::daemon
