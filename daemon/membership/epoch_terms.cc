#include "daemon/membership/epoch_terms.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tern::daemon {

void EpochTerms::add(const JoinTerms& join) {
  lanes_ = std::clamp<std::int64_t>(join.lanes, 1, lanes_);
  chunk_bytes_ = std::clamp<std::int64_t>(join.chunk_bytes, 16 << 10, chunk_bytes_);
  eager_bytes_ = std::clamp<std::int64_t>(join.eager_bytes, 0, eager_bytes_);
  max_ops_ = std::clamp<std::int64_t>(join.max_ops, 1, max_ops_);
  cut_ = std::clamp<std::int64_t>(join.cut, 1, cut_);
  eager_form_ = std::clamp<std::int64_t>(join.eager_form, 1, eager_form_);
  rooted_form_ = std::clamp<std::int64_t>(join.rooted_form, 1, rooted_form_);
  lossy_min_ = std::max(lossy_min_, join.lossy_min);
  op_timeout_ms_ = std::max(op_timeout_ms_, join.op_timeout_ms);
  verify_ = verify_ || join.verify;
  if (!seed_) seed_ = join.seed;
  const std::int64_t completed = std::max<std::int64_t>(join.completed, 0);
  completed_ = std::min(completed_.value_or(completed), completed);
}

void EpochTerms::write_to(nlohmann::json& body) const {
  body["lanes"] = lanes_;
  body["chunk_bytes"] = chunk_bytes_;
  body["eager_bytes"] = std::min(eager_bytes_, chunk_bytes_);
  body["max_ops"] = max_ops_;
  body["cut"] = cut_;
  body["eager_form"] = eager_form_;
  body["rooted_form"] = rooted_form_;
  body["lossy_min"] = lossy_min_;
  body["op_timeout_ms"] = op_timeout_ms_;
  body["verify"] = verify_;
  body["seed"] = seed_.value_or(0);
}

}  // namespace tern::daemon
