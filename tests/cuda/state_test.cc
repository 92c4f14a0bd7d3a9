// Checkpoints of a tensor whose residual is in part on the device.

#include <cstring>

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace state_test {

using Part = std::vector<std::byte>;

Part part_of(GpuNode& node, tern_tensor* tensor) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(tern_tensor_state_bytes(tensor, &bytes), TERN_OK);
  Part part(bytes);
  EXPECT_EQ(tern_cuda_tensor_export_state(node.tensor(), part.data(), bytes, &bytes), TERN_OK)
      << tern_cuda_error_detail();
  EXPECT_EQ(bytes, part.size());
  return part;
}

Part part_of(tern_tensor* tensor) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(tern_tensor_state_bytes(tensor, &bytes), TERN_OK);
  Part part(bytes);
  EXPECT_EQ(tern_tensor_export_state(tensor, part.data(), bytes, &bytes), TERN_OK);
  return part;
}

class CudaState : public testing::TestWithParam<std::uint64_t> {
 protected:
  std::uint64_t count() const { return GetParam(); }
  std::vector<float> input(std::uint64_t seed) const { return gaussian(count(), seed); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, CudaState, testing::Values(kWhole, kAnnounced, kLarge));

// The part is, byte for byte, that of a node with elements; and either takes the other's.
TEST_P(CudaState, PartsAreThoseOfElements) {
  const auto gpu = make_gpu();
  const std::string job = new_job(), job_of_elements = new_job();
  Node node(daemons()[0], job), beside(daemons()[1], job);
  Node plain(daemons()[0], job_of_elements), plain_beside(daemons()[1], job_of_elements);
  Node::join({&node, &beside});
  Node::join({&plain, &plain_beside});
  node.declare("3lc", count(), true);
  for (Node* const other : {&beside, &plain, &plain_beside}) other->declare("3lc", count(), false);
  GpuNode on_gpu(*gpu, node, count());
  const auto step = [&](std::uint64_t seed) {
    auto theirs = input(seed + 100), expected = input(seed), same = input(seed + 100);
    const auto a = beside.all_reduce(theirs);
    const auto b = plain.all_reduce(expected);
    const auto c = plain_beside.all_reduce(same);
    tern_ticket ticket = 0;
    ASSERT_EQ(on_gpu.all_reduce(input(seed), ticket), TERN_OK);
    ASSERT_EQ(on_gpu.finish(ticket), TERN_OK) << tern_cuda_error_detail();
    beside.wait(a);
    plain.wait(b);
    plain_beside.wait(c);
    on_gpu.stream_is_free();
    EXPECT_EQ(bits_of(on_gpu.seen()), bits_of(expected));
  };
  step(1);
  step(2);
  const Part part = part_of(on_gpu, node.tensor());
  EXPECT_EQ(part, part_of(plain.tensor()));
  const Part part_beside = part_of(beside.tensor());
  step(3);
  // Back to where it was: the next step has the bits that it had.
  auto expected = on_gpu.seen();
  const void* const parts[] = {part.data()};
  const std::uint64_t bytes[] = {part.size()};
  ASSERT_EQ(tern_cuda_tensor_import_state(on_gpu.tensor(), parts, bytes, 1), TERN_OK)
      << tern_cuda_error_detail();
  EXPECT_EQ(part_of(on_gpu, node.tensor()), part);
  const void* const others[] = {part_beside.data()};
  const std::uint64_t other_bytes[] = {part_beside.size()};
  ASSERT_EQ(tern_tensor_import_state(beside.tensor(), others, other_bytes, 1), TERN_OK);
  auto theirs = input(103);
  const auto again = beside.all_reduce(theirs);
  tern_ticket ticket = 0;
  ASSERT_EQ(on_gpu.all_reduce(input(3), ticket), TERN_OK);
  ASSERT_EQ(on_gpu.finish(ticket), TERN_OK);
  beside.wait(again);
  on_gpu.stream_is_free();
  EXPECT_EQ(bits_of(on_gpu.seen()), bits_of(expected));
}

// Also while the stream of encoding is held up by another tensor's operation.
TEST(CudaStateOfADeclaration, IsWhereABindBegins) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), beside(daemons()[1], job);
  Node::join({&node, &beside});
  node.declare("3lc", kLarge, true);
  Part given;
  {
    GpuNode on_gpu(*gpu, node, kLarge);
    given = part_of(on_gpu, node.tensor());
  }
  constexpr std::size_t kHeaderBytes = 64;
  const auto values = gaussian(kLarge, 3);
  std::memcpy(given.data() + kHeaderBytes, values.data(), kLarge * sizeof(float));
  const void* const parts[] = {given.data()};
  const std::uint64_t bytes[] = {given.size()};
  ASSERT_EQ(tern_tensor_import_state(node.tensor(), parts, bytes, 1), TERN_OK);
  tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
  options.name = "bias.grad";
  options.count = kWhole;
  options.role = TERN_GRADIENT;
  options.recipe = "3lc";
  options.client_blocks = 1;
  tern_tensor* bias = nullptr;
  ASSERT_EQ(tern_tensor_declare(node.group(), &options, &bias), TERN_OK);

  GpuNode on_gpu(*gpu, node, kLarge, false);
  tern_cuda_tensor* bound = nullptr;
  ASSERT_EQ(tern_cuda_tensor_bind(on_gpu.cuda(), node.group(), bias, &bound), TERN_OK);
  tern_cuda_op op = on_gpu.op();
  tern_ticket ticket = 0;
  ASSERT_EQ(tern_cuda_all_reduce(bound, &op, gpu->program_stream(), &ticket), TERN_OK);
  ASSERT_EQ(on_gpu.bind(), TERN_OK) << tern_cuda_error_detail();
  ASSERT_EQ(tern_group_leave(beside.group()), TERN_OK);
  EXPECT_NE(on_gpu.finish(ticket), TERN_OK);
  EXPECT_EQ(part_of(on_gpu, node.tensor()), given);
  EXPECT_EQ(tern_cuda_tensor_release(bound), TERN_OK);
}

// What a release hands over is what the daemon has, and keeps for the next declaration.
TEST(CudaStateOfADeclaration, IsTheDaemonsAfterARelease) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), beside(daemons()[1], job);
  Node::join({&node, &beside});
  node.declare("3lc", kLarge, true);
  beside.declare("3lc", kLarge, false);
  Part on_device;
  {
    GpuNode on_gpu(*gpu, node, kLarge);
    auto theirs = gaussian(kLarge, 101);
    const auto other = beside.all_reduce(theirs);
    tern_ticket ticket = 0;
    ASSERT_EQ(on_gpu.all_reduce(gaussian(kLarge, 1), ticket), TERN_OK);
    ASSERT_EQ(on_gpu.finish(ticket), TERN_OK) << tern_cuda_error_detail();
    beside.wait(other);
    on_gpu.stream_is_free();
    on_device = part_of(on_gpu, node.tensor());
    EXPECT_NE(part_of(node.tensor()), on_device);  // the daemon has its own chunks alone
  }
  EXPECT_EQ(part_of(node.tensor()), on_device);
  ASSERT_EQ(tern_tensor_release(node.tensor()), TERN_OK);
  // Lanes let go of it first; of other tests nothing is declared.
  EXPECT_TRUE(e2e::eventually([] { return daemons()[0].ask("tensors").empty(); }));
  node.declare("3lc", kLarge, true);
  GpuNode on_gpu(*gpu, node, kLarge);
  EXPECT_EQ(part_of(on_gpu, node.tensor()), on_device);
}

TEST(CudaStateOfNothing, IsTheHeader) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), beside(daemons()[1], job);
  Node::join({&node, &beside});
  node.declare("none(3lc)", kLarge, true);
  GpuNode on_gpu(*gpu, node, kLarge);
  EXPECT_EQ(part_of(on_gpu, node.tensor()).size(), 64u);
  std::byte little{};
  std::uint64_t bytes = 0;
  EXPECT_EQ(tern_cuda_tensor_export_state(on_gpu.tensor(), &little, 1, &bytes),
            TERN_ERR_INVALID_ARGUMENT);
}

TEST(CudaStateOfAnother, IsRefusedAndChangesNothing) {
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), beside(daemons()[1], job);
  Node::join({&node, &beside});
  node.declare("3lc", kLarge, true);
  GpuNode on_gpu(*gpu, node, kLarge);
  const Part before = part_of(on_gpu, node.tensor());
  const Part nonsense(100);
  const void* const parts[] = {nonsense.data()};
  const std::uint64_t bytes[] = {nonsense.size()};
  EXPECT_EQ(tern_cuda_tensor_import_state(on_gpu.tensor(), parts, bytes, 1),
            TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(part_of(on_gpu, node.tensor()), before);
}

// The residual needs the room that the slots had.
TEST(CudaStateInAFullArena, IsHandedOver) {
  constexpr std::uint64_t kCount = 1 << 20;
  const auto gpu = make_gpu();
  const std::string job = new_job();
  Node node(daemons()[0], job), other(daemons()[1], job);
  Node::join({&node, &other});
  node.declare("3lc", kCount, true);
  const GpuNode on_gpu(*gpu, node, kCount);
  for (std::uint64_t bytes = 16 << 20; bytes >= 4096;) {
    void* memory = nullptr;
    if (tern_alloc(node.client(), bytes, &memory) != TERN_OK) bytes /= 2;
  }
  std::uint64_t bytes = 0;
  ASSERT_EQ(tern_tensor_state_bytes(node.tensor(), &bytes), TERN_OK);
  std::vector<std::byte> part(bytes);
  EXPECT_EQ(tern_tensor_export_state(node.tensor(), part.data(), bytes, &bytes),
            TERN_ERR_OUT_OF_MEMORY);
}

}  // namespace state_test
}  // namespace tern::cuda
