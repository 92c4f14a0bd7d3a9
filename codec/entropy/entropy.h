#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/block.h"

// Codes to fewer bytes and back, without loss: the last stage. Works on any bytes.
namespace tern::codec::entropy {

using Kind = wire::EntropyId;

struct Params {
  Kind kind = Kind::none;
  // huffman with a static codebook: its name, zero-padded; empty: the codebook is made anew for
  // each block and travels in it.
  std::array<char, 24> book{};

  friend bool operator==(const Params&, const Params&) = default;
};

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

enum class Status : std::uint8_t {
  ok,
  corrupt,       // not this coder's output, or not of out.size() bytes
  unknown_book,  // static codebook: this node has none with the hash that the block names
};

// Foreign bytes. Fills the whole of `out` or fails; what was written lies inside it.
Status decode(Kind kind, std::span<const std::byte> in, std::span<std::byte> out,
              Scratch& scratch) noexcept;

}  // namespace tern::codec::entropy
