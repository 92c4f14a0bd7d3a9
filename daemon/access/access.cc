#include "daemon/access/access.h"

#include <grp.h>
#include <pwd.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/config/user_list.h"

namespace tern::daemon {
namespace {

// An entry of a directory may be as long as it likes; beyond this it is not believed.
constexpr std::size_t kMaxEntryBytes = std::size_t{1} << 20;

// An entry of the user or the group database, and the memory that it points into.
template <typename Entry>
struct Named {
  Entry entry{};
  Entry* found = nullptr;  // null: there is none of that name, or the look-up failed
  int error = ERANGE;
  std::vector<char> buffer = {};
};

// Calls getpwnam_r or getgrnam_r with a buffer that is large enough.
template <typename Entry, typename LookUp>
void look_up(LookUp look_up, const std::string& name, Named<Entry>& named) {
  std::vector<char>& buffer = named.buffer;
  for (buffer.resize(1024); buffer.size() <= kMaxEntryBytes; buffer.resize(2 * buffer.size())) {
    named.error = look_up(name.c_str(), &named.entry, buffer.data(), buffer.size(), &named.found);
    if (named.error != ERANGE) break;
  }
}

void warn(std::string_view setting, const char* kind, const std::string& name, int error) {
  if (error == 0 || error == ENOENT || error == ESRCH) {
    spdlog::warn("{}: this machine has no {} {}; the entry lets nobody in", setting, kind, name);
  } else {
    spdlog::warn("{}: {} {} cannot be looked up: {}; reload to try again", setting, kind, name,
                 std::strerror(error));
  }
}

UserIds resolve(std::string_view setting, const std::string& text, bool warns) {
  UserIds ids;
  const auto list = parse_user_list(text);
  if (!list) return ids;  // check_config has refused it
  ids.users.assign(list->users.numbers.begin(), list->users.numbers.end());
  ids.groups.assign(list->groups.numbers.begin(), list->groups.numbers.end());
  for (const std::string& name : list->users.names) {
    Named<passwd> user;
    look_up(::getpwnam_r, name, user);
    if (user.found != nullptr) {
      ids.users.push_back(user.found->pw_uid);
    } else if (warns) {
      warn(setting, "user", name, user.error);
    }
  }
  for (const std::string& name : list->groups.names) {
    Named<group> unix_group;
    look_up(::getgrnam_r, name, unix_group);
    if (unix_group.found != nullptr) {
      ids.groups.push_back(unix_group.found->gr_gid);
    } else if (warns) {
      warn(setting, "group", name, unix_group.error);
    }
  }
  return ids;
}

template <typename Id>
bool contains(const std::vector<Id>& ids, Id id) noexcept {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::string_view standing_name(Standing standing) noexcept {
  switch (standing) {
    case Standing::user:
      return "user";
    case Standing::observer:
      return "observer";
    case Standing::administrator:
      return "administrator";
  }
  return "user";
}

bool UserIds::has(const Credentials& who) const noexcept {
  return contains(users, who.uid) || contains(groups, who.gid) ||
         std::any_of(who.groups.begin(), who.groups.end(),
                     [this](gid_t group) { return contains(groups, group); });
}

Access Access::create(const Config& config) {
  Access access;
  // Whether the default's group exists depends on how the daemon was installed.
  const bool is_default = config.observers == Config{}.observers;
  access.observers_ = resolve("observers", config.observers, !is_default);
  access.administrators_ = resolve("administrators", config.administrators, true);
  return access;
}

Standing Access::standing_of(const Credentials& who) const noexcept {
  if (who.uid == 0 || who.uid == ::geteuid() || administrators_.has(who)) {
    return Standing::administrator;
  }
  return observers_.has(who) ? Standing::observer : Standing::user;
}

Scope Access::scope_of(const Credentials& who) const noexcept {
  return standing_of(who) == Standing::user ? Scope::of_user(who.uid) : Scope::of_all();
}

bool Access::is_observed_by(gid_t group) const noexcept {
  return contains(observers_.groups, group) || contains(administrators_.groups, group);
}

Status Access::check(std::string_view verb, const Credentials& who) const {
  const auto* const rule = std::find_if(kVerbRules.begin(), kVerbRules.end(),
                                        [verb](const VerbRule& one) { return one.verb == verb; });
  if (rule == kVerbRules.end()) {
    std::string known;
    for (const VerbRule& one : kVerbRules) {
      if (one.verb == kPolicySet) continue;
      known += (known.empty() ? "" : ", ") + std::string(one.verb);
    }
    return fail(Errc::unsupported, "unknown verb; this daemon knows " + known);
  }
  if (standing_of(who) >= rule->least) return {};
  const std::string user = "user " + std::to_string(who.uid);
  if (rule->least == Standing::administrator) {
    return fail(Errc::permission_denied,
                "it changes what all jobs get, and " + user +
                    " is not in the setting administrators; root and the daemon's user may");
  }
  return fail(Errc::permission_denied,
              "it shows what belongs to all users, and " + user +
                  " is neither in the setting observers nor in administrators");
}

}  // namespace tern::daemon
