#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/entropy/params.h"

// Codes to fewer bytes and back, without loss: the last stage. Works on any bytes.
namespace tern::codec::entropy {

// Working memory, made once per thread: zstd's, lz4's and libdeflate's contexts, tables. Nothing is
// allocated after it was made. All contexts are made at once; pages that no stage has written to
// yet cost nothing, so that 0.5 MiB is resident until a library is used.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;

  struct Contexts;
  Contexts& contexts() noexcept { return *contexts_; }

 private:
  std::unique_ptr<Contexts> contexts_;
};

// The coded bytes, or 0: they would not fit into `out` (the caller sends the input as it is, so out
// is at most in.size() - 1 bytes long). An empty input gives 0.
std::size_t encode(const Params& params, std::span<const std::byte> in, std::span<std::byte> out,
                   Scratch& scratch) noexcept;

// Foreign bytes. Fills the whole of `out` or fails; what was written lies inside it.
Status decode(Kind kind, std::span<const std::byte> in, std::span<std::byte> out,
              Scratch& scratch) noexcept;

}  // namespace tern::codec::entropy
