#pragma once

// The block header of elements that travel as they are, before a body that lies elsewhere.

#include <array>
#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "collective/op.h"
#include "wire/block.h"

namespace tern::daemon {

class RawPrefix {
 public:
  // `nonfinite`: a lossy recipe met a value that is not finite. Valid as long as this.
  std::span<const std::byte> write(const collective::Op& op, std::uint32_t elements,
                                   bool nonfinite) noexcept {
    const auto dtype = static_cast<DType>(op.announced_first.dtype);
    wire::write_block_header(codec::raw_block_header(dtype, elements, nonfinite, op.key.sequence),
                             bytes_);
    return bytes_;
  }

 private:
  std::array<std::byte, wire::kBlockHeaderBytes> bytes_;
};

}  // namespace tern::daemon
