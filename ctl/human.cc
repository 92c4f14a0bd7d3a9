#include "ctl/human.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tern::ctl {
namespace {

// Three significant digits, without the zeros and the exponent that %g would give: "1.5", "12.3",
// "512".
std::string three_digits(double value) {
  if (value >= 99.95) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:.{}f}", value, value >= 9.995 ? 1 : 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

struct Unit {
  std::uint64_t seconds;
  std::string_view name;
};
constexpr Unit kSeconds{1, "s"};
constexpr Unit kMinutes{60, "min"};
constexpr Unit kHours{3'600, "h"};
constexpr Unit kDays{86'400, "d"};

std::string two_units(std::uint64_t seconds, const Unit& large, const Unit& small) {
  const std::uint64_t whole = seconds / large.seconds;
  const std::uint64_t rest = seconds % large.seconds / small.seconds;
  if (rest == 0) return fmt::format("{} {}", whole, large.name);
  return fmt::format("{} {} {} {}", whole, large.name, rest, small.name);
}

}  // namespace

std::string human_count(std::uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string human_bytes(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  // 1023.5 would be printed as 1024.
  while (bytes >= 1023.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(bytes), kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (!(seconds > 0)) return "0 s";
  if (seconds < 0.9995e-6) return fmt::format("{} ns", three_digits(seconds * 1e9));
  if (seconds < 0.9995e-3) return fmt::format("{} us", three_digits(seconds * 1e6));
  if (seconds < 0.9995) return fmt::format("{} ms", three_digits(seconds * 1e3));
  if (seconds < 59.95) return fmt::format("{} s", three_digits(seconds));
  if (!(seconds < 1e15)) return "forever";
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < kHours.seconds) return two_units(whole, kMinutes, kSeconds);
  if (whole < kDays.seconds) return two_units(whole, kHours, kMinutes);
  return two_units(whole, kDays, kHours);
}

std::string human_ratio(double ratio) { return three_digits(ratio) + "x"; }

std::string human_ranks(std::vector<std::int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == 1) ++last;
    // Two neighbours are easier to read as a list.
    if (last - first < 2) last = first;
    if (!text.empty()) text += ',';
    text += last == first ? fmt::format("{}", ranks[first])
                          : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace tern::ctl
