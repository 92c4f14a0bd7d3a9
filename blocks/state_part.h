#pragma once

// One node's part of a tensor's codec state (docs/codecs.md, "Parts of codec state"), of which the
// daemon has the chunks that the node owns, and the program those of other nodes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "blocks/contributions.h"
#include "client_lib/include/tern/tern.h"

namespace tern::blocks {

class StatePart {
 public:
  // Foreign: bytes that are no part have no residual.
  explicit StatePart(std::vector<std::byte> bytes) noexcept : bytes_(std::move(bytes)) {}
  // What the daemon has. Fails as tern_tensor_export_state does.
  static Result<StatePart> of_daemon(tern_tensor* tensor);

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  // From and to the part. Nothing, where one of them has no residual.
  void take(const Contributions& contributions) noexcept;
  void give(Contributions& contributions) const;

 private:
  // Of all elements; empty: the part has none.
  std::span<float> residual() const noexcept;

  std::vector<std::byte> bytes_;
};

}  // namespace tern::blocks
