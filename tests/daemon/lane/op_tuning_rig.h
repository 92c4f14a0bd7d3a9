#pragma once

// An op of a tensor that the tuner chooses for, on one of three nodes.

#include <gtest/gtest.h>

#include <memory>

#include "daemon/lane/op_tuning.h"
#include "group_rig.h"

namespace tern::daemon::op_tuning_test {

using collective::OpId;
using group_test::kChunk;
using group_test::Node;
using group_test::OneNode;
using group_test::ramp;
using group_test::recipe_of;
using group_test::Spec;
using wire::Leg;

enum Candidate : tuner::CandidateIndex { kRaw = 0, kHalf = 1, kBits = 2, kForbidden = 3 };
inline constexpr std::uint16_t kList = 0x1234;
inline constexpr std::uint64_t kTensorNumber = 42;

class OpTuningTest : public OneNode {
 protected:
  explicit OpTuningTest(std::uint32_t self = 0, std::uint64_t eager_bytes = 0)
      : OneNode({.ranks = {{0}, {1}, {2}},
                 .eager_bytes = eager_bytes,
                 .eager_form = collective::EagerForm::blocks},
                self) {
    tensor->tuning =
        std::make_unique<TensorTuning>(TensorTuning::Candidates{recipes, kList},
                                       TensorTuning::Place{kTensorNumber, 3, node.core.self(), 6});
    tensor->tuning->allow(1u << kRaw | 1u << kHalf | 1u << kBits);
  }

  // Nodes 1 and 2 are waited for alike.
  void publish(std::uint32_t version, const tuner::Choice& choice) {
    tensor->tuning->publish(version, choice, choice.reduce.front());
  }
  OpId begin_use(std::uint64_t use, const shm::EncodedBy& by = {}) {
    const Spec spec{.tensor = 3, .count = 6 * kChunk, .use = use};
    LaneOp lane_op = Node::by_recipe_of(*tensor);
    lane_op.encoding.tuning = tensor->tuning.get();
    node.made.by = by;
    // What others announce of one that travels with its announcement comes with their values.
    return node.core.setup().shape.eager_bytes > 0 ? node.submit(spec, lane_op)
                                                   : node.begin(spec, lane_op);
  }
  // So that the next use may begin.
  void end(OpId op) {
    node.core.ops().fail(op, {Errc::cancelled, 0, ""});
    node.carry_out_all();
    node.core.ops().release(op);
    node.core.forget(op);
    node.tuning.forget(op);
  }
  TunedRecord described(OpId op) { return node.tuning.describe(op).value(); }
  static wire::AnnounceBody lead(std::uint8_t candidate, std::uint16_t list = kList) {
    wire::AnnounceBody body{};
    body.lead = static_cast<std::uint8_t>(candidate + 1);
    body.candidates = list;
    return body;
  }
  // Candidate by which the op's contribution to that node, or this node's result, is sent.
  const codec::Recipe& contribution(OpId op, std::uint32_t owner, std::uint32_t number = 4) {
    return node.tuning.recipe(op, {number, Leg::reduce, owner});
  }
  const codec::Recipe& result(OpId op, std::uint32_t number = 3) {
    return node.tuning.recipe(op, {number, Leg::broadcast, node.core.self()});
  }
  const codec::Recipe& by(tuner::CandidateIndex candidate) { return (*recipes)[candidate]; }

  const std::shared_ptr<CandidateRecipes> recipes =
      std::make_shared<CandidateRecipes>(CandidateRecipes{
          recipe_of("raw"), recipe_of("bf16"), recipe_of("ef(int:bits=4)"), recipe_of("3lc")});
  const std::unique_ptr<TensorState> tensor =
      node.declare({.tensor = 3, .count = 6 * kChunk}, "ef(int:bits=4)");
};

class OpTuningOfAFollower : public OpTuningTest {
 protected:
  OpTuningOfAFollower() : OpTuningTest(1) {}
};

}  // namespace tern::daemon::op_tuning_test
