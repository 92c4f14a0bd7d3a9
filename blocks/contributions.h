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
  float prescale = 1.0f;        // of the values
  float state_scale = 1.0f;     // of the residual
  std::uint64_t use = 0;        // of the tensor: the operation's number
  std::uint32_t raw_first = 0;  // of the chunks of each other node so many go raw
};

// What went into lossy blocks, and what these have left out.
struct Lost {
  std::uint64_t elements = 0;
  // Sums of squares: of values, and of what is left in the residual.
  double energy = 0.0;
  double residual_energy = 0.0;
};

// Thread: one at a time.
class Contributions {
 public:
  // `recipe`: of sums and averages. Where the layout is tuned, of the first operation.
  Contributions(const Layout& layout, const codec::Recipe& recipe);

  // Of the next operations. REQUIRES: the layout is tuned.
  void change_recipe(const codec::Recipe& recipe);

  // Writes all slots: blocks of chunks that other nodes own, and this node's own chunks as they
  // are. `input` has the tensor's elements, and stays as it is meanwhile.
  Lost encode(std::span<const std::byte> input, const Terms& terms, std::span<std::byte> slots,
              codec::Workspace& workspace);
  // The operation of the last encode() has failed: nothing was sent.
  void take_back() noexcept;

  // Whether anything is remembered.
  bool has_residual() const noexcept { return !residual_.empty(); }
  // Between this and an array of the tensor's elements, those of chunks that other nodes own. Where
  // the layout is tuned, what is read is remembered.
  void write_residual(std::span<float> elements) const noexcept;
  void read_residual(std::span<const float> elements);

 private:
  // A chunk on its way into its slot.
  struct Job {
    Chunk chunk;
    const std::byte* elements;  // of the input
    const Terms& terms;
    std::span<std::byte> slot;
    codec::Workspace& workspace;
    Lost& lost;
  };
  enum class Encoded : std::uint8_t { block, nonfinite, no_room };

  void remember();
  template <typename Use>
  void for_each_contributed(Use use) const;
  void save() noexcept;
  void contribute(const Job& job);
  Encoded encode_lossy(const Job& job);
  bool encode_lossless(const Job& job);
  // With all that earlier blocks have left out. False: a value is not finite, and it stays owed.
  bool pay_back(const Job& job);
  void write_raw(const Job& job, bool nonfinite) const;
  void write_raw_header(const Job& job, bool nonfinite) const;
  // The values in f32, where they lie or in `floats_`.
  std::span<const float> floats_of(const Job& job);
  // In their own type, times the prescale.
  void copy_elements(const Job& job, std::byte* out) const;
  float* codebook_of(const Chunk& chunk) noexcept;

  const Layout& layout_;
  codec::Recipe recipe_;
  std::vector<float> floats_;       // a chunk's values
  std::vector<float> residual_;     // of all elements; empty: nothing has been remembered
  std::vector<std::uint8_t> owes_;  // by chunk: its residual may hold something
  std::vector<float> codebooks_;    // of lloyd, by chunk; empty: the recipe has none, or changes
  // The same before the last encode().
  std::vector<float> saved_;
  std::vector<std::uint8_t> saved_owes_;
  std::vector<float> saved_codebooks_;
};

}  // namespace tern::blocks
