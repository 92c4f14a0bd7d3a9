#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "codec/codec.h"
#include "codec/recipe.h"
#include "daemon/tensor/zeroed_array.h"

namespace tern::daemon {

// What a node remembers of one tensor between ops. Each lane reads and writes what belongs to its
// own chunks only. A stream is what one sender says of one chunk: of a chunk this node contributes
// to another owner, or, for a chunk it owns, of the result; so one array serves both legs.
class CodecState {
 public:
  struct Shape {
    std::uint64_t count = 0;  // elements of the tensor
    std::uint64_t chunk_elements = 1;
    std::uint32_t nodes = 1;
    std::uint32_t self = 0;
    DType dtype = DType::f32;
    // An all_reduce of it travels with its announcements: nobody owns a chunk, and the residual is
    // of what this node contributes alone.
    bool eager = false;
    // What this node contributes is encoded for its announcement, before the op begins: save().
    bool announced = false;

    // What a residual means does not depend on when contributions are encoded.
    bool operator==(const Shape& other) const noexcept {
      return count == other.count && chunk_elements == other.chunk_elements &&
             nodes == other.nodes && self == other.self && dtype == other.dtype &&
             eager == other.eager;
    }
  };

  CodecState() = default;
  // What `recipe` needs, all zero. False: no memory.
  [[nodiscard]] bool allocate(const codec::Recipe& recipe, const Shape& shape);

  // What allocate() will take of memory once all chunks have been used.
  static std::uint64_t bytes_of(const codec::Recipe& recipe, const Shape& shape) noexcept;
  // How far a shift moves; 1 unless the recipe has a shift.
  static float alpha_of(const codec::Recipe& recipe, std::uint64_t chunk_elements) noexcept;
  // Whether the blocks of a chunk are counted, because each builds on the one before.
  static bool has_streams(const codec::Recipe& recipe) noexcept;
  std::uint64_t bytes() const noexcept { return bytes_; }
  bool empty() const noexcept { return !sender_; }

  // Error feedback survives a new declaration of the same tensor: takes the other's residual.
  // False, and nothing is taken, if the chunks, the nodes, this node's number or the way of an
  // all_reduce are others: what a result left out would become what a contribution left out.
  bool adopt_residual(CodecState& other) noexcept;

  // Null where the recipe has none. `begin` is the chunk's first element.
  float* sender(std::uint64_t begin) const noexcept {
    return sender_ ? sender_.get() + begin : nullptr;
  }
  // Of a tensor whose contributions travel with their announcements, before the contribution to its
  // `use`-th op is encoded: what that op will change. It is there until the next one is saved.
  void save(std::uint64_t use) noexcept;
  // False: another op has been saved since, and nothing is done.
  bool restore(std::uint64_t use) noexcept;
  float* codebook(std::uint32_t chunk) const noexcept {
    return codebooks_ ? codebooks_.get() + chunk * codec::kCodebookLevels : nullptr;
  }
  // xordelta: the last elements of the chunk, in their own type.
  std::span<std::byte> sent_bytes(std::uint64_t begin, std::uint32_t elements) const noexcept {
    return bytes_at(sender_.get(), begin, elements);
  }
  std::span<std::byte> received_bytes(std::uint32_t node, std::uint64_t begin,
                                      std::uint32_t elements) const noexcept {
    return bytes_at(received_[node].get(), begin, elements);
  }

  // Frees a part that takes less than a millisecond. True: something is left. Nothing of the state
  // may be used any more.
  bool free_some() noexcept;

  bool has_streams() const noexcept { return keeps_ != Keeps::nothing; }
  // A lossy block is a difference to what stream() has.
  bool keeps_shifts() const noexcept { return keeps_ == Keeps::shifts; }
  // Blocks of xordelta are differences to received_bytes().
  bool keeps_last_bytes() const noexcept { return keeps_ == Keeps::last_bytes; }
  // How many blocks the sender's stream of the chunk has had; 0: its state is to be zeroed first.
  std::uint64_t& sender_step(std::uint32_t chunk) noexcept { return sender_steps_[chunk]; }
  std::uint64_t& receiver_step(std::uint32_t node, std::uint32_t chunk) noexcept {
    return receiver_steps_[node][chunk];
  }
  // What comes of the chunk's streams next is refused, unless it begins anew. Of a stream that has
  // had no block that is so already.
  void lose_received(std::uint32_t chunk) noexcept {
    for (const Steps& steps : receiver_steps_) {
      if (steps && steps[chunk] != 0) steps[chunk] = kLost;
    }
  }
  codec::ShiftStream stream(std::uint32_t node, std::uint32_t chunk, std::uint64_t begin,
                            float state_scale) noexcept {
    return {received_[node].get() + begin, &receiver_steps_[node][chunk], alpha_, state_scale};
  }
  float alpha() const noexcept { return alpha_; }

 private:
  // Of streams, at both ends.
  enum class Keeps : std::uint8_t { nothing, shifts, last_bytes };
  // No stream gets so far.
  static constexpr std::uint64_t kLost = ~std::uint64_t{0};

  using Floats = ZeroedArray<float>;
  using Steps = ZeroedArray<std::uint64_t>;

  std::span<std::byte> bytes_at(float* floats, std::uint64_t begin,
                                std::uint32_t elements) const noexcept {
    auto* const bytes = static_cast<std::byte*>(static_cast<void*>(floats));
    const std::size_t width = dtype_bytes(shape_.dtype);
    return {bytes + begin * width, elements * width};
  }

  Shape shape_;
  Keeps keeps_ = Keeps::nothing;
  float alpha_ = 1.0f;
  std::uint64_t bytes_ = 0;
  Floats sender_;
  Floats saved_;  // of an announced shape: the residual before an op
  Floats saved_codebooks_;
  std::uint64_t saved_use_ = kLost;
  Floats codebooks_;
  std::vector<Floats> received_;       // by sender; only the chunks of which it has a stream to us
  Steps sender_steps_;                 // by chunk
  std::vector<Steps> receiver_steps_;  // by node, chunk; null: this node
};

}  // namespace tern::daemon
