#pragma once

// One attack, beside the job of another user: two daemons of a user without rights, the victim, and
// the attackers, each a user of his own.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/attack/attack.h"
#include "tests/e2e/cluster.h"

namespace tern::attack {

inline constexpr uid_t kDaemonUser = 1'000'000'010;
inline constexpr uid_t kVictimUser = 1'000'000'001;
inline constexpr uid_t kFirstAttacker = 1'000'000'101;

// What a daemon holds: memory of its own, and descriptors.
struct Burden {
  std::int64_t anonymous_bytes = 0;
  std::size_t descriptors = 0;
};
Burden burden_of(pid_t pid);

class Trial {
 public:
  // REQUIRES: root. The daemons are as the stage of the attack wants them.
  explicit Trial(Stage stage);
  ~Trial();

  // Why there is none; empty if it can begin.
  const std::string& problem() const noexcept { return problem_; }
  struct Plan {
    std::string_view attack;
    int users = 1;
    double seconds = 2;
    std::uint64_t seed = 1;
    std::vector<std::string_view> beside = {};  // attacks, each of one more user
  };
  // What the victim met meanwhile (see Victim::stop), with `blows`, those of all attackers, and
  // `least_blows`, those of the one that has struck least. Null where the victim has given no answer.
  nlohmann::json run(const Plan& plan);
  // The victim's log: why it has ended, if it has.
  std::string victim_said();

  e2e::DaemonProcess& daemon(std::size_t node = 0) { return (*cluster_)[node]; }
  e2e::Cluster& cluster() noexcept { return *cluster_; }
  Target target();

 private:
  class FullDisk;
  class OlderKernel;
  class OwnedUsers;

  std::unique_ptr<FullDisk> disk_;
  e2e::TemporaryFolder keys_;
  std::unique_ptr<e2e::Cluster> cluster_;
  e2e::Process victim_;
  std::string problem_;
};

}  // namespace tern::attack
