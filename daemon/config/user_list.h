#pragma once

// Users and groups as settings name them: "alice, 1000, @gpu, @1001", groups with an @.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tern::daemon {

// As written: whether the names exist is another question.
struct UserList {
  struct Entries {
    std::vector<std::uint32_t> numbers;
    std::vector<std::string> names;
  };
  Entries users;
  Entries groups;
};

// The error says which entry is wrong and what is allowed, without the setting's name.
Result<UserList> parse_user_list(std::string_view text);

}  // namespace tern::daemon
