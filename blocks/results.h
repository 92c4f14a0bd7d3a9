#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "blocks/layout.h"
#include "codec/codec.h"
#include "codec/workspace.h"

namespace tern::blocks {

// The results of all chunks, out of their slots into the tensor's elements. Thread: one at a time.
class Results {
 public:
  explicit Results(const Layout& layout) : layout_(layout) {}

  // corrupt_data names the chunk whose block makes no sense; `output` is then partly written.
  Status decode(std::span<const std::byte> slots, std::span<std::byte> output,
                codec::Workspace& workspace);

 private:
  // Null, or what is wrong with the block.
  const char* decode_block(const codec::BlockView& block, std::span<std::byte> out,
                           codec::Workspace& workspace);
  const char* decode_lossy(const codec::BlockView& block, std::span<std::byte> out,
                           codec::Workspace& workspace);

  const Layout& layout_;
  std::vector<float> floats_;  // a chunk's values, where the output has another type
};

}  // namespace tern::blocks
