#pragma once

// Counters that are a histogram together: `lane_turns_100us` counts the turns of lanes of up to 100
// us, `lane_turns_250us` those of up to 250 us that are longer, and so on; `lane_turn_ns` is how
// long all of them took. Those of the conductor begin with `conductor`.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tern::counters {

struct TurnBound {
  std::string_view name;  // the end of the counter's
  std::uint64_t up_to_ns;
};

inline constexpr std::array kTurnBounds{
    TurnBound{"100us", 100'000},           TurnBound{"250us", 250'000},
    TurnBound{"500us", 500'000},           TurnBound{"1ms", 1'000'000},
    TurnBound{"2500us", 2'500'000},        TurnBound{"5ms", 5'000'000},
    TurnBound{"10ms", 10'000'000},         TurnBound{"20ms", 20'000'000},
    TurnBound{"50ms", 50'000'000},         TurnBound{"100ms", 100'000'000},
    TurnBound{"250ms", 250'000'000},       TurnBound{"1s", 1'000'000'000},
    TurnBound{"longer", ~std::uint64_t{0}}};

inline constexpr std::array<std::string_view, 2> kTurnThreads{"conductor", "lane"};

inline std::string turns_name(std::string_view thread, const TurnBound& bound) {
  return std::string(thread) + "_turns_" + std::string(bound.name);
}
inline std::string turn_sum_name(std::string_view thread) {
  return std::string(thread) + "_turn_ns";
}

}  // namespace tern::counters
