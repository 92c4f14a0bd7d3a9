#pragma once

#include <span>

#include "base/dtype.h"

namespace tern::codec {

// What lossy blocks have left out of a chunk, for a block that loses nothing to carry.
struct Owed {
  float* residual = nullptr;  // an element for each value; null: there is none
  float state_scale = 1.0f;
  DType carried = DType::f32;    // the type in which the values leave
  DType delivered = DType::f32;  // the type of results, which are the values times `share`
  float share = 1.0f;
};

// values = values + state_scale * residual, as `carried` has them; what that rounds away stays in
// the residual. False, and nothing has changed: there is no residual, or a value would not be
// finite where it is delivered.
bool pay_back(const Owed& owed, std::span<float> values) noexcept;

}  // namespace tern::codec
