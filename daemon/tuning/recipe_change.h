#pragma once

#include <string>

namespace tern::daemon {

// The tuner sends a tensor otherwise from now on.
struct RecipeChange {
  std::string group, job, tensor;
  std::string from, to;  // `from` is empty for its first choice
  std::string reason;
  bool trial = false;  // to compare, not to stay
};

}  // namespace tern::daemon
