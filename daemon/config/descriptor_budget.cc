#include "daemon/config/descriptor_budget.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <climits>

#include "base/fd.h"

namespace tern::daemon {
namespace {

// The socket and its watch, the pidfd, the segment, and both ends of the notifying pair.
constexpr std::uint64_t kOfClient = 6;
constexpr std::uint64_t kOfClientAndLane = 2;  // the eventfd and its watch
constexpr std::uint64_t kWithoutHello = 3;     // of kOfClient, those that are there at once
// Links of conductors: as many peers as one has, and as many that this one asks.
constexpr std::uint64_t kControlLinks = 1024 + 256;
// Peers without a hello, control connections (those of administrators too), scrapes.
constexpr std::uint64_t kDoors = 64 + 2 * 32 + 32;
// Listeners, event loops, timers, the log, files that are written for a moment.
constexpr std::uint64_t kOwn = 32;
constexpr std::uint64_t kOwnOfLane = 8;

// Users who have all the clients that one may have: so many may want all their links.
std::uint64_t full_users(const Config& config) {
  return (config.max_clients + config.max_clients_per_user - 1) / config.max_clients_per_user;
}

}  // namespace

std::uint64_t DescriptorBudget::reserve() const noexcept {
  return std::min(kDoors + kOwn, limit / 4);
}

bool DescriptorBudget::is_full(std::uint64_t taken) const noexcept {
  return limit > 0 && taken + per_client + reserve() > limit;
}

std::uint64_t descriptor_limit() {
  rlimit limit{};
  const bool is_limited =
      ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? limit.rlim_cur : 0;
}

// The table grows for the highest descriptor, and never shrinks.
void make_room_for_descriptors(const DescriptorBudget& budget) {
  const std::uint64_t most =
      budget.limit > 0 ? std::min(budget.needed(), budget.limit) : budget.needed();
  const Fd any(::eventfd(0, EFD_CLOEXEC));
  const Fd highest(::fcntl(any.get(), F_DUPFD_CLOEXEC,
                           static_cast<int>(std::min<std::uint64_t>(most - 1, INT_MAX))));
}

DescriptorBudget descriptor_budget(const Config& config, std::uint64_t limit) {
  DescriptorBudget budget;
  budget.limit = limit;
  budget.per_client =
      kOfClient + DescriptorBudget::kRegionsNotOpen + kOfClientAndLane * config.lanes;
  budget.clients = config.max_clients * (budget.per_client + kWithoutHello);
  budget.links = full_users(config) * config.max_links_per_user;
  budget.rest = kControlLinks + kDoors + kOwn + kOwnOfLane * config.lanes;
  return budget;
}

std::string descriptor_trouble(const Config& config, const DescriptorBudget& budget) {
  if (budget.limit == 0 || budget.needed() <= budget.limit) return "";
  return fmt::format(
      "the daemon may have {} descriptors, and its settings allow {}: {} for max_clients = {}, {} "
      "for {} users with max_links_per_user = {}, {} for all else; raise LimitNOFILE= in its unit "
      "(`ulimit -n` without one), or lower these settings. Until then clients are refused while "
      "fewer than {} are left",
      budget.limit, budget.needed(), budget.clients, config.max_clients, budget.links,
      full_users(config), config.max_links_per_user, budget.rest,
      budget.reserve() + budget.per_client);
}

bool asks_for_descriptors(const Config& config) {
  const Config defaults;
  return config.max_clients != defaults.max_clients ||
         config.max_clients_per_user != defaults.max_clients_per_user ||
         config.max_links_per_user != defaults.max_links_per_user || config.lanes != defaults.lanes;
}

}  // namespace tern::daemon
