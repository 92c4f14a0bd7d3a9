#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tern::ctl {

// What a monitoring program needs: yes or no, and one line that says why.
struct Health {
  bool well = false;
  std::string line;  // without its end
};

// From the daemon's answers to `status`, `peers` (null: they are not shown to this user, who sees
// his own groups alone) and `groups`. An operation that has waited for
// ranks for longer than `patience_s` is a fault; one that a rank is a little late for is not.
Health judge_health(const nlohmann::json& status, const nlohmann::json& peers,
                    const nlohmann::json& groups, double patience_s);

}  // namespace tern::ctl
