#include "daemon/conductor/drain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "daemon/membership/control_frames.h"

namespace tern::daemon {
namespace {

constexpr std::size_t kJobsNamed = 8;

}  // namespace

bool Drain::is_idle() const {
  return clients() == 0 && jobs_.groups.all().empty() && jobs_.joins.all().empty() &&
         jobs_.coordinator.groups_of_others() == 0;
}

bool Drain::is_over() const { return is_on() && (clock_.now_ns() >= deadline_ns_ || is_idle()); }

std::string Drain::refusal() const {
  if (is_stopping_) return "the daemon is stopping";
  if (!is_on()) return "";
  return "the daemon takes no new jobs, because it is about to be replaced; try again in a while";
}

std::string Drain::hello_refusal() const {
  const bool gathers = !jobs_.joins.all().empty() || jobs_.coordinator.is_gathering();
  return gathers && !is_stopping_ ? "" : refusal();
}

std::string Drain::join_refusal(const Client& client, const std::string& uid) const {
  const bool goes_on =
      client.has_joined || jobs_.joins.all().contains(uid) || jobs_.coordinator.has_begun(uid);
  return goes_on && !is_stopping_ ? "" : refusal();
}

// Those that have said hello, and not goodbye.
std::size_t Drain::clients() const {
  const auto& all = jobs_.clients.all();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [](const auto& one) { return one.second->memory != nullptr; }));
}

std::string Drain::text() const {
  std::map<std::string, std::size_t> jobs;
  for (const auto& [id, client] : jobs_.clients.all()) jobs[client->job] += client->memory ? 1 : 0;
  std::string list;
  std::size_t named = 0;
  for (const auto& [job, count] : jobs) {
    if (count == 0 || named > kJobsNamed) continue;
    if (named > 0) list += ", ";
    list += named++ == kJobsNamed ? "others" : fmt::format("{}: {}", job, count);
  }
  const auto counted = [](std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  const std::uint64_t now = clock_.now_ns();
  const std::size_t of_others = jobs_.coordinator.groups_of_others();
  return fmt::format("waits for {}{} and {}{}, for {} s at most", counted(clients(), "client"),
                     list.empty() ? "" : " (" + list + ")",
                     counted(jobs_.groups.all().size(), "group"),
                     of_others == 0 ? "" : fmt::format(" ({} with other nodes)", of_others),
                     (deadline_ns_ - std::min(now, deadline_ns_)) / 1'000'000'000);
}

nlohmann::json Drain::report() const {
  nlohmann::json waits_for = nlohmann::json::array();
  for (const auto& [id, client] : jobs_.clients.all()) {
    if (!client->memory) continue;
    waits_for.push_back({{"id", id},
                         {"pid", client->credentials.pid},
                         {"uid", client->credentials.uid},
                         {"job", client->job}});
  }
  nlohmann::json report = {{"node_id", node_text(self_)},
                           {"draining", is_on()},
                           {"idle", is_idle()},
                           {"groups", jobs_.groups.all().size()},
                           {"coordinates", jobs_.coordinator.groups_of_others()},
                           {"waits_for", std::move(waits_for)}};
  if (is_on()) {
    const std::uint64_t now = clock_.now_ns();
    report["text"] = text();
    report["seconds_left"] = static_cast<double>(deadline_ns_ - std::min(now, deadline_ns_)) / 1e9;
  }
  return report;
}

}  // namespace tern::daemon
