#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "client_lib/include/tern/tern.h"

// This node's part of a tensor's state, as the daemon exports it and docs/codecs.md describes it: a
// header of 64 bytes, and under error feedback a float for each element. Of those for chunks that
// other nodes own, the daemon of a tensor with client_blocks has what it began with.
namespace tern::cuda {

class StatePart {
 public:
  static Result<StatePart> of(tern_tensor* tensor, std::uint64_t count);

  // In element order; empty: the tensor has no residual.
  std::span<float> floats() noexcept;
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  StatePart() = default;

  std::vector<std::byte> bytes_;
  std::uint64_t count_ = 0;
  bool has_residual_ = false;
};

}  // namespace tern::cuda
