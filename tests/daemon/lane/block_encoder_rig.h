#pragma once

// Of a lane that encodes by itself, the blocks it makes.

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "daemon/lane/block_encoder.h"
#include "group_rig.h"

namespace tern::daemon::block_encoder_test {

using collective::OpId;
using group_test::kChunk;
using group_test::Memory;
using group_test::Node;
using group_test::OneNode;
using group_test::ramp;
using group_test::recipe_of;
using group_test::Spec;

// With tensor 2 this node, 0, owns the even chunks.
class BlockEncoderTest : public OneNode {
 protected:
  explicit BlockEncoderTest(const group_test::Shape& shape = {}) : OneNode(shape) {}

  BlockCompletion contribute(OpId op, const codec::Recipe& recipe, std::uint32_t number = 1) {
    BlockRequest request;
    request.number = number;
    request.node = 1;
    request.recipe = &recipe;
    request.block = room.operand();
    return perform(BlockVerb::encode, op, request);
  }
  // The chunks that this node sends. Returns the largest value.
  float scan(OpId op, std::initializer_list<std::uint32_t> numbers) {
    for (const std::uint32_t number : numbers) {
      BlockRequest request;
      request.number = number;
      EXPECT_EQ(perform(BlockVerb::scan, op, request).form, BlockForm::none);
    }
    return node.codec.blocks().stats(op).contributions_max.value_or(0.0f);
  }
  BlockCompletion finish(OpId op, const codec::Recipe& recipe, Memory& sum,
                         std::uint32_t number = 0) {
    BlockRequest request;
    request.number = number;
    request.recipe = &recipe;
    request.block = room.operand();
    request.sum = sum.operand();
    return perform(BlockVerb::finish, op, request);
  }
  BlockCompletion finish_parked(OpId op, const codec::Recipe& recipe, std::uint32_t number) {
    BlockRequest request;
    request.number = number;
    request.recipe = &recipe;
    request.block = room.operand();
    return perform(BlockVerb::finish_parked, op, request);
  }
  std::vector<std::byte> made(const BlockCompletion& done) {
    const auto block = room.bytes().first(done.bytes);
    return {block.begin(), block.end()};
  }
  std::vector<float> made_floats(const BlockCompletion& done) {
    auto values = room.as<float>();
    values.resize(done.bytes / sizeof(float));
    return values;
  }
  // The tuner chooses among raw and the declared recipe.
  LaneOp tuned(TensorState& tensor) {
    auto recipes = std::make_shared<CandidateRecipes>(
        CandidateRecipes{recipe_of("raw"), tensor.declared.recipe});
    tensor.tuning = std::make_unique<TensorTuning>(TensorTuning::Candidates{recipes, 1},
                                                   TensorTuning::Place{1, node.core.nodes(), 0, 4});
    LaneOp op = Node::by_recipe_of(tensor);
    op.encoding.tuning = tensor.tuning.get();
    return op;
  }

  const codec::Recipe raw = recipe_of("raw");
  Memory room{small_block()};

 private:
  static std::size_t small_block() { return group_test::small_lane().block_bytes(); }
};

}  // namespace tern::daemon::block_encoder_test
