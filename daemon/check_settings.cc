#include "daemon/check_settings.h"

#include <algorithm>

#include "codec/recipe.h"
#include "codec/target/target.h"
#include "daemon/config/settings.h"
#include "daemon/tuning/candidates.h"
#include "daemon/tuning/tuning_policy.h"

namespace tern::daemon {

Status check_settings(const Config& config) {
  if (auto recipe = codec::parse_recipe(config.default_gradient_recipe); !recipe) {
    return fail(Errc::bad_recipe, "default_gradient_recipe: " + recipe.error().text);
  }
  if (auto policy = TuningPolicy::parse(config.policy); !policy) {
    return tl::unexpected(policy.error());
  }
  if (auto candidates = read_candidates(split_candidates(config.candidates)); !candidates) {
    return tl::unexpected(candidates.error());
  }
  const auto targets = codec::target::supported();
  if (config.kernel_target != "auto" &&
      std::find(targets.begin(), targets.end(), config.kernel_target) == targets.end()) {
    return fail(Errc::invalid_argument,
                "kernel_target: this machine cannot run " + config.kernel_target);
  }
  return {};
}

Status check_reload(const Config& running, const Config& fresh) {
  Config changed = fresh;
  // A user whom it names may be gone since it was read.
  if (fresh.policy == running.policy) changed.policy.clear();
  if (auto checked = check_settings(changed); !checked) return checked;
  if (auto both = check_config(with_reloadable(running, fresh)); !both) {
    return fail(both.error().code,
                both.error().text + " (what waits for a restart has its old value until then)");
  }
  return {};
}

}  // namespace tern::daemon
