#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "bench/inputs.h"
#include "codec/codec.h"

namespace tern::bench {

// Why a recipe cannot be measured here; none: it can.
std::optional<std::string> why_unavailable(const codec::Recipe& recipe);

struct StreamOptions {
  codec::Recipe recipe;
  DType dtype = DType::f32;
  std::size_t elements = 0;
  std::size_t chunk_elements = 0;
  std::uint64_t seed = 1;
};

// One value of the tensor: in its own type, and as f32. The same memory where that is the type.
struct ValueView {
  std::span<const std::byte> own;
  std::span<const float> floats;
};

struct StepResult {
  std::size_t bytes = 0;  // of all blocks, headers included
  double input_energy = 0;
  double residual_energy = 0;
};

// A tensor that is sent again and again, as one rank's contribution is: the sender's end with its
// state, and a reader's with its own. One thread.
class CodecStream {
 public:
  // Requires: why_unavailable(recipe) is none.
  explicit CodecStream(const StreamOptions& options);

  // The next value to blocks, which stay until the next call.
  StepResult encode(const ValueView& value);

  // Lossless recipes and raw give back elements in their own type, others f32.
  bool decodes_own_type() const;
  // All blocks of the last value, once. Requires: `own` or `floats`, whichever it is, as long as
  // the tensor.
  void decode(std::span<std::byte> own, std::span<float> floats);

  // Without a reader's state the blocks can also be added.
  bool can_add() const;
  void decode_add(std::span<float> floats);

  // Kept between steps by the sender, and by each reader for each sender.
  std::size_t sender_state_bytes() const;
  std::size_t reader_state_bytes() const;

 private:
  struct Block {
    wire::BlockHeader header;
    std::span<const std::byte> payload;
  };

  std::size_t chunks() const;
  bool is_delta() const;
  Block encode_chunk(std::size_t chunk, const ValueView& value, std::span<std::byte> room,
                     StepResult& result);
  Block encode_own(std::size_t chunk, std::span<const std::byte> own, std::span<std::byte> room);

  StreamOptions options_;
  std::size_t element_bytes_;
  std::size_t slot_bytes_;  // of a chunk's payload
  std::uint64_t step_ = 0;
  float tensor_max_ = 0.0f;  // scale=tensor: of the step's value
  std::vector<std::byte> payload_;
  std::vector<Block> blocks_;
  codec::Workspace workspace_;
  FloatArray sender_state_;
  FloatArray reader_state_;
  std::vector<std::uint64_t> reader_steps_;  // of each chunk
  std::vector<float> codebooks_;             // lloyd's, of each chunk
  std::vector<std::byte> sender_last_;
  std::vector<std::byte> reader_last_;
};

}  // namespace tern::bench
