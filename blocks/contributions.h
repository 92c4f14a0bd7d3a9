#pragma once

// What this node contributes to the sums of other nodes, as blocks, and what these leave out.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "blocks/layout.h"
#include "codec/recipe.h"
#include "codec/workspace.h"

namespace tern::blocks {

// How the values of one operation are taken.
struct Terms {
  Reduction reduction = Reduction::sum;
  float prescale = 1.0f;     // of the values
  float state_scale = 1.0f;  // of the residual
  std::uint64_t use = 0;     // of the tensor: the operation's number
};

// Thread: one at a time.
class Contributions {
 public:
  // `recipe`: of sums and averages.
  Contributions(const Layout& layout, const codec::Recipe& recipe);

  // Writes all slots: blocks of chunks that other nodes own, and this node's own chunks as they
  // are. `input` has the tensor's elements, and stays as it is meanwhile.
  void encode(std::span<const std::byte> input, const Terms& terms, std::span<std::byte> slots,
              codec::Workspace& workspace);
  // The operation of the last encode() has failed: nothing was sent.
  void take_back() noexcept;

  // Whether anything is remembered.
  bool has_residual() const noexcept { return !residual_.empty(); }
  // Between this and an array of the tensor's elements, those of chunks that other nodes own.
  void write_residual(std::span<float> elements) const noexcept;
  void read_residual(std::span<const float> elements) noexcept;

 private:
  // A chunk on its way into its slot.
  struct Job {
    Chunk chunk;
    const std::byte* elements;  // of the input
    const Terms& terms;
    std::span<std::byte> slot;
    codec::Workspace& workspace;
  };
  enum class Encoded : std::uint8_t { block, nonfinite, no_room };

  template <typename Use>
  void for_each_contributed(Use use) const;
  void save() noexcept;
  void contribute(const Job& job);
  Encoded encode_lossy(const Job& job);
  bool encode_lossless(const Job& job);
  void write_raw(const Job& job, bool nonfinite) const;
  // The values in f32, where they lie or in `floats_`.
  std::span<const float> floats_of(const Job& job);
  // In their own type, times the prescale.
  void copy_elements(const Job& job, std::byte* out) const;
  float* codebook_of(const Chunk& chunk) noexcept;

  const Layout& layout_;
  codec::Recipe recipe_;
  std::vector<float> floats_;     // a chunk's values
  std::vector<float> residual_;   // of all elements; empty: the recipe has no memory
  std::vector<float> saved_;      // the same before the last encode()
  std::vector<float> codebooks_;  // of lloyd, by chunk; empty: the recipe has none
  std::vector<float> saved_codebooks_;
};

}  // namespace tern::blocks
