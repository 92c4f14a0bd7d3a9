#pragma once

// One sender's blocks of one chunk, and their reader, as two daemons would have them: what the
// tests of memories descend with.

#include "codec_harness.h"

namespace tern::codec {

// One node's stream to the owner: both ends, which must agree on every bit.
class Stream {
 public:
  Stream(const Recipe& recipe, std::uint64_t node, std::size_t count)
      : recipe_(recipe),
        node_(node),
        sender_(has_memory(recipe) ? count : 0, 0.0f),
        shift_(count, 0.0f) {}

  std::vector<float> send(std::span<const float> values) {
    EncodeRequest request;
    std::vector<float> delivered(values.size());
    request.stream_step = step_;
    request.key = mixed_key(mixed_key(99, node_), step_);
    request.alpha = shift_alpha(recipe_, values.size());
    request.delivered_out = delivered.data();
    request.exact = recipe_.memory == Memory::ef21 && step_ == 0;
    const auto block = encode_block(recipe_, values, sender_, request);
    EXPECT_FALSE(block.result.nonfinite);
    ++step_;
    std::vector<float> out(values.size());
    const ShiftStream stream{shift_.data(), &received_, request.alpha, 1.0f};
    const auto status =
        needs_shift(recipe_)
            ? decode_shifted({block.header, block.payload}, stream, out, workspace())
            : decode({block.header, block.payload}, out, workspace());
    EXPECT_EQ(decode_status_name(status), "ok");
    if (needs_shift(recipe_)) {
      EXPECT_EQ(bits_of(shift_), bits_of(sender_));
      EXPECT_EQ(bits_of(out), bits_of(delivered));
    }
    return out;
  }

  const std::vector<float>& sender() const { return sender_; }

 private:
  Recipe recipe_;
  std::uint64_t node_;
  std::uint64_t step_ = 0, received_ = 0;
  std::vector<float> sender_, shift_;
};

}  // namespace tern::codec
