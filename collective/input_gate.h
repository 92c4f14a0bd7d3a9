#pragma once

#include <cstdint>

#include "collective/slots.h"

namespace tern::collective {

// What of the values of this node's ranks may be read. A rank may submit an op whose input is still
// being copied to where lanes see it. The op is announced and granted all the same; only an action
// that reads values which are not there does not come out yet. Answers stay true.
class InputGate {
 public:
  // All that this node's ranks have for a chunk, by its number in the op.
  virtual bool has(OpId op, std::uint32_t chunk) const noexcept = 0;
  virtual bool has_all(OpId op) const noexcept = 0;

 protected:
  ~InputGate() = default;
};

class WholeInputs final : public InputGate {
 public:
  bool has(OpId, std::uint32_t) const noexcept override { return true; }
  bool has_all(OpId) const noexcept override { return true; }
};

}  // namespace tern::collective
