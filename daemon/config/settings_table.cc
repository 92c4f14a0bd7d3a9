#include <algorithm>
#include <array>

#include "daemon/config/job_settings.h"
#include "daemon/config/node_settings.h"

namespace tern::daemon {
namespace {

constexpr auto kSettings = [] {
  std::array<Setting, std::size(kNodeSettings) + std::size(kJobSettings)> all{};
  const auto jobs = std::copy(std::begin(kNodeSettings), std::end(kNodeSettings), all.begin());
  std::copy(std::begin(kJobSettings), std::end(kJobSettings), jobs);
  return all;
}();

}  // namespace

std::span<const Setting> settings() { return kSettings; }

}  // namespace tern::daemon
