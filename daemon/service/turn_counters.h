#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tern::daemon {

// How long the turns of one thread took. Written by that thread, read by anybody;
// daemon/metrics/counter_table.h documents each.
struct TurnCounters {
  // Turns of up to so long, and longer than those before.
  std::atomic<std::uint64_t> turns_100us{0}, turns_250us{0}, turns_500us{0}, turns_1ms{0};
  std::atomic<std::uint64_t> turns_2500us{0}, turns_5ms{0}, turns_10ms{0}, turns_20ms{0};
  std::atomic<std::uint64_t> turns_50ms{0}, turns_100ms{0}, turns_250ms{0}, turns_1s{0};
  std::atomic<std::uint64_t> turns_longer{0};
  std::atomic<std::uint64_t> turn_ns{0};  // all of them together
  std::atomic<std::uint64_t> turns_over_budget{0};
};

struct TurnBucket {
  std::uint64_t up_to_ns;
  std::atomic<std::uint64_t> TurnCounters::*turns;
};

// In the order of the struct's fields.
inline constexpr std::array kTurnBuckets{
    TurnBucket{100'000, &TurnCounters::turns_100us},
    TurnBucket{250'000, &TurnCounters::turns_250us},
    TurnBucket{500'000, &TurnCounters::turns_500us},
    TurnBucket{1'000'000, &TurnCounters::turns_1ms},
    TurnBucket{2'500'000, &TurnCounters::turns_2500us},
    TurnBucket{5'000'000, &TurnCounters::turns_5ms},
    TurnBucket{10'000'000, &TurnCounters::turns_10ms},
    TurnBucket{20'000'000, &TurnCounters::turns_20ms},
    TurnBucket{50'000'000, &TurnCounters::turns_50ms},
    TurnBucket{100'000'000, &TurnCounters::turns_100ms},
    TurnBucket{250'000'000, &TurnCounters::turns_250ms},
    TurnBucket{1'000'000'000, &TurnCounters::turns_1s},
    TurnBucket{~std::uint64_t{0}, &TurnCounters::turns_longer}};

}  // namespace tern::daemon
