#pragma once

// Who may use which verb of the control socket, and whose jobs they see there.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/access/scope.h"
#include "daemon/config/config.h"
#include "daemon/control/control_verbs.h"

namespace tern::daemon {

// Each may do what those before it may.
enum class Standing : std::uint8_t {
  user,           // anybody: sees their own jobs
  observer,       // sees everything
  administrator,  // changes what all jobs get
};

std::string_view standing_name(Standing standing) noexcept;

// A verb, and who may use it.
struct VerbRule {
  std::string_view verb;
  Standing least;
};

// Changing the policy, which the verb `policy` does when it is given rules.
inline constexpr std::string_view kPolicySet = "policy set";

// Every verb of the daemon. Those of users show each caller what their standing lets them see.
inline constexpr std::array kVerbRules{
    VerbRule{"version", Standing::user},           VerbRule{"status", Standing::user},
    VerbRule{"clients", Standing::user},           VerbRule{"groups", Standing::user},
    VerbRule{"tensors", Standing::user},           VerbRule{"tuner", Standing::user},
    VerbRule{"explain", Standing::user},           VerbRule{"peers", Standing::observer},
    VerbRule{"counters", Standing::observer},      VerbRule{"host", Standing::observer},
    VerbRule{"settings", Standing::observer},      VerbRule{"log", Standing::observer},
    VerbRule{"trace", Standing::observer},         VerbRule{"policy", Standing::observer},
    VerbRule{kPolicySet, Standing::administrator}, VerbRule{"drain", Standing::administrator}};

// The users and groups of a setting, as the kernel numbers them.
struct UserIds {
  std::vector<uid_t> users;
  std::vector<gid_t> groups;

  bool has(const Credentials& who) const noexcept;
};

class Access {
 public:
  // Lets in root and the daemon's own user alone.
  Access() = default;

  // Looks the names up, which may take time; one that this machine does not have lets nobody in
  // and is logged. Requires: the configuration has been checked.
  static Access create(const Config& config);

  Standing standing_of(const Credentials& who) const noexcept;
  Scope scope_of(const Credentials& who) const noexcept;
  // Whether the members of a group may see everything.
  bool is_observed_by(gid_t group) const noexcept;

  // permission_denied with the setting that decides, or unsupported for what is no verb.
  Status check(std::string_view verb, const Credentials& who) const;

 private:
  UserIds observers_;
  UserIds administrators_;
};

}  // namespace tern::daemon
