// One more operation by one file: an all_reduce to which each rank contributes its input rotated.
// Nothing but this descriptor knows of it, and whole daemons carry it out.

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster.h"
#include "plan/plans.h"

namespace tern::sim {
namespace {

constexpr std::uint16_t kNumber = 100;

// By how many elements the input of a rank is rotated, so that no two are alike.
std::uint64_t shift_of(std::uint32_t rank, std::uint32_t root, std::uint64_t count) {
  return (std::uint64_t{rank} * 1237 + std::uint64_t{root} * 11 + 5) % count;
}

// Element i of the op is element (i + shift) % count of the input: at most two pieces.
plan::Range rotated_piece(const plan::Shape& shape, plan::Range of) {
  const std::uint64_t shift = shift_of(shape.rank, shape.root, shape.count);
  const std::uint64_t begin = (of.begin + shift) % shape.count;
  return {begin, std::min(of.count, shape.count - begin)};
}

constexpr plan::Plan kRotatedAllReduce{
    .number = kNumber,
    .name = "rotated_all_reduce",
    .work = plan::Work::reduce,
    .contributors = plan::Ranks::every,
    .receivers = plan::Ranks::every,
    .ownership = plan::Ownership::striped,
    .eager = plan::Eager::contributions,
    .has_root = true,
    .may_lose = true,
    .alike = true,
    .takes_tensor = true,
    .extents =
        [](const plan::Shape& shape) {
          return plan::Extents{plan::whole_op(shape), plan::whole_op(shape)};
        },
    .objection = [](const plan::Shape& shape) -> const char* {
      return shape.count == 0 ? "there is nothing to rotate" : nullptr;
    },
    .input_piece = rotated_piece,
};
const plan::Registration kRegistration(kRotatedAllReduce);

Bytes rotated(const Bytes& input, std::uint64_t shift, DType dtype) {
  Bytes out = input;
  std::rotate(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(shift * dtype_bytes(dtype)),
              out.end());
  return out;
}

struct Case {
  std::vector<std::uint32_t> ranks_of_node;
  DType dtype;
  std::uint64_t count;
  std::string recipe;  // empty: anonymous and raw
};

// The reference is an all_reduce of inputs that were rotated here.
void expect_rotated_sums(const Case& c) {
  DaemonShape shape;
  shape.lanes = 2;
  Cluster cluster(c.ranks_of_node, shape);
  cluster.join();
  std::vector<Tensor*> tensors;
  if (!c.recipe.empty()) {
    TensorSpec spec;
    spec.name = "g";
    spec.count = c.count;
    spec.dtype = c.dtype;
    spec.role = Role::gradient;
    spec.recipe = c.recipe;
    tensors = cluster.declare(spec);
  }
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto request = all_reduce(c.dtype, c.count);
    const auto inputs = inputs_of(c.dtype, c.count, cluster.size(), step + 1);
    auto toy = request;
    toy.kind = static_cast<shm::OpKind>(kNumber);
    toy.root = static_cast<std::uint32_t>(step % cluster.size());
    std::vector<Bytes> turned;
    for (std::uint32_t rank = 0; rank < cluster.size(); ++rank) {
      turned.push_back(rotated(inputs[rank], shift_of(rank, toy.root, c.count), c.dtype));
    }
    const Bytes got = cluster.reduce(toy, inputs, tensors);
    const Bytes expected = cluster.reference->all_reduce(
        request, tensors.empty() ? nullptr : tensors[0], step, turned);
    EXPECT_TRUE(got == expected) << "step " << step;
    cluster.forget_arenas();
  }
  cluster.leave_all();
}

TEST(ToyOperation, RotatedInputsAreReducedWhateverNodesTypesSizesAndRecipes) {
  for (const auto& ranks_of_node :
       {std::vector<std::uint32_t>{2}, {1, 1}, {1, 2}, {1, 1, 1}, {2, 1, 2}}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      for (const std::uint64_t count : {100u, 40'000u}) {  // eager, and many chunks on two lanes
        for (const std::string recipe : {"", "raw", "3lc:s=1", "3lc:s=1,scale=tensor"}) {
          SCOPED_TRACE(testing::Message() << ranks_of_node.size() << " nodes, " << dtype_name(dtype)
                                          << ", " << count << " " << recipe);
          expect_rotated_sums({ranks_of_node, dtype, count, recipe});
        }
      }
    }
  }
}

TEST(ToyOperation, WhatItsPlanObjectsToIsRefused) {
  Cluster cluster({1, 1});
  cluster.join();
  auto request = all_reduce(DType::f32, 0);
  request.kind = static_cast<shm::OpKind>(kNumber);
  const auto pending = cluster.submit(request, inputs_of(DType::f32, 0, 2));
  cluster.finish(pending);
  cluster.expect_all(pending, Errc::invalid_argument, "there is nothing to rotate");
}

TEST(ToyOperation, ItsMismatchIsToldByItsName) {
  Cluster cluster({1, 1});
  cluster.join();
  auto request = all_reduce(DType::f32, 100);
  std::vector<std::uint64_t> tickets;
  for (Client* client : cluster.ranks) {
    request.input = client->allocate(400);
    request.output = client->allocate(400);
    tickets.push_back(client->submit(request));
    request.kind = static_cast<shm::OpKind>(kNumber);  // of the second rank
  }
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    Client& client = *cluster.ranks[rank];
    ASSERT_TRUE(cluster.world.run_until([&] { return client.done(tickets[rank]); }));
    EXPECT_EQ(client.result(tickets[rank]).status, Errc::mismatch);
    EXPECT_TRUE(contains(client.result(tickets[rank]).detail, "says rotated_all_reduce 100 f32"))
        << client.result(tickets[rank]).detail;
  }
}

}  // namespace
}  // namespace tern::sim
