#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "collective/group_shape.h"
#include "daemon/membership/join_terms.h"
#include "shm/sharding.h"

namespace tern::daemon {

// What the daemons of an epoch agree on: the least of what each can do, the most of what each
// demands. Joins may say nonsense: lanes, sizes, numbers of ops and versions stay between the
// bounds that all daemons have.
class EpochTerms {
 public:
  void add(const JoinTerms& join);
  // The terms among the fields of a list of members.
  void write_to(nlohmann::json& body) const;
  // How many operations of the epochs before all have completed; 0 before the first join.
  std::int64_t common_ops() const noexcept { return completed_.value_or(0); }

 private:
  std::int64_t lanes_ = 16, chunk_bytes_ = 1 << 30, eager_bytes_ = 1 << 30, max_ops_ = 1 << 20;
  std::int64_t cut_ = static_cast<std::int64_t>(shm::kNewestCut);
  std::int64_t eager_form_ = static_cast<std::int64_t>(collective::kNewestEagerForm);
  std::int64_t rooted_form_ = static_cast<std::int64_t>(collective::kNewestRootedForm);
  std::int64_t lossy_min_ = 0, op_timeout_ms_ = 0;
  bool verify_ = false;
  std::optional<std::int64_t> seed_;  // of the first that is added
  std::optional<std::int64_t> completed_;
};

}  // namespace tern::daemon
