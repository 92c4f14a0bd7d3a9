// Tensors with client_blocks, as a program sees them: the layout, and what is refused before the
// daemon hears of it. What becomes of blocks is in tests/sim and tests/blocks.

#include <cstring>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace {

FakeOptions with_blocks(bool blocks, std::uint64_t block_elements) {
  FakeOptions options;
  options.blocks = blocks;
  options.block_elements = block_elements;
  return options;
}

class BlocksTest : public ClientTest {
 protected:
  explicit BlocksTest(bool blocks = true, std::uint64_t block_elements = 256)
      : ClientTest(with_blocks(blocks, block_elements)) {}

  tern_status declare_blocks(tern_tensor** tensor, std::uint32_t client_blocks = 1) {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = "t";
    options.count = kCount;
    options.role = TERN_GRADIENT;
    options.recipe = "3lc:s=1";
    options.client_blocks = client_blocks;
    return tern_tensor_declare(group, &options, tensor);
  }
  tern_block_layout layout_of(tern_tensor* tensor) {
    tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
    EXPECT_EQ(tern_tensor_get_block_layout(tensor, &layout), TERN_OK) << tern_error_detail();
    return layout;
  }
  std::byte* slots(const tern_block_layout& layout) {
    void* memory = nullptr;
    EXPECT_EQ(tern_alloc(client, layout.chunks * layout.slot_bytes + 64, &memory), TERN_OK);
    return static_cast<std::byte*>(memory);
  }

  static constexpr std::uint64_t kCount = 1000;  // four chunks of the fake daemon's
};

TEST_F(BlocksTest, HaveTheLayoutThatTheDaemonSays) {
  tern_tensor* tensor = nullptr;
  ASSERT_EQ(declare_blocks(&tensor), TERN_OK) << tern_error_detail();
  EXPECT_EQ(daemon.last_declare().client_blocks, 1);
  const tern_block_layout layout = layout_of(tensor);
  EXPECT_EQ(layout.count, kCount);
  EXPECT_EQ(layout.dtype, TERN_F32);
  EXPECT_EQ(layout.chunk_elements, 256u);
  EXPECT_EQ(layout.chunks, 4u);
  EXPECT_EQ(layout.slot_bytes, (32u + 1024 + 2048 + 63) / 64 * 64);
  EXPECT_EQ(layout.seed, 7u);
  EXPECT_EQ(layout.most_block_bytes, 900u);
  EXPECT_EQ(layout.travels_whole, 0u);
  EXPECT_EQ(layout.next_use, 0u);
  EXPECT_EQ(layout.node, 0u);
  EXPECT_EQ(layout.nodes, 1u);
  EXPECT_STREQ(layout.recipe, "ef(3lc:s=1,scale=4096)");
}

TEST_F(BlocksTest, AreSubmittedInTheirSlots) {
  tern_tensor* tensor = nullptr;
  ASSERT_EQ(declare_blocks(&tensor), TERN_OK);
  const tern_block_layout layout = layout_of(tensor);
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor;
  op.input = slots(layout);
  op.output = slots(layout);
  tern_ticket ticket = 0;
  ASSERT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK) << tern_error_detail();
  EXPECT_EQ(layout_of(tensor).next_use, 1u);
  daemon.await_entries(1);
  const shm::SubmitEntry entry = daemon.seen().front().entry;
  EXPECT_EQ(entry.flags, shm::kEntryHasBlocks);
  EXPECT_EQ(entry.count, kCount);
  EXPECT_EQ(entry.output_offset - entry.input_offset,
            static_cast<std::uint64_t>(static_cast<std::byte*>(op.output) -
                                       static_cast<const std::byte*>(op.input)));
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
}

class OldDaemonTest : public BlocksTest {
 protected:
  OldDaemonTest() : BlocksTest(false) {}
};

TEST_F(OldDaemonTest, IsAskedForNoBlocks) {
  tern_tensor* tensor = nullptr;
  EXPECT_EQ(declare_blocks(&tensor), TERN_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tern_error_detail(), "update ternd"), nullptr);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::tensor_declare), 0u);
}

TEST_F(BlocksTest, AreOfATensorThatWasDeclaredSo) {
  tern_tensor* tensor = nullptr;
  EXPECT_EQ(declare_blocks(&tensor, 2), TERN_ERR_INVALID_ARGUMENT);
  ASSERT_EQ(declare_blocks(&tensor, 0), TERN_OK);
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  EXPECT_EQ(tern_tensor_get_block_layout(tensor, &layout), TERN_ERR_UNKNOWN_TENSOR);
  EXPECT_EQ(tern_tensor_get_block_layout(nullptr, &layout), TERN_ERR_INVALID_ARGUMENT);
  layout.struct_size = 8;
  EXPECT_EQ(tern_tensor_get_block_layout(tensor, &layout), TERN_ERR_INVALID_ARGUMENT);
}

class ImpossibleBlocksTest : public BlocksTest {
 protected:
  ImpossibleBlocksTest() : BlocksTest(true, 0) {}
};

TEST_F(ImpossibleBlocksTest, EndTheConnection) {
  tern_tensor* tensor = nullptr;
  EXPECT_EQ(declare_blocks(&tensor), TERN_ERR_PROTOCOL_ERROR);
}

TEST_F(BlocksTest, AreRefusedWhereTheyCannotBe) {
  tern_tensor* tensor = nullptr;
  ASSERT_EQ(declare_blocks(&tensor), TERN_OK);
  const tern_block_layout layout = layout_of(tensor);
  std::byte* const memory = slots(layout);
  const auto expect_refused = [&](auto change, const char* word,
                                  decltype(&tern_all_reduce) submit = tern_all_reduce) {
    tern_op op = TERN_OP_INIT;
    op.tensor = tensor;
    op.input = op.output = memory;
    change(op);
    tern_ticket ticket = 0;
    EXPECT_EQ(submit(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT) << word;
    EXPECT_NE(std::strstr(tern_error_detail(), word), nullptr) << tern_error_detail();
  };
  const auto nothing = [](tern_op&) {};
  alignas(64) static std::byte outside[64 << 10];
  expect_refused([](tern_op& op) { op.input = op.output = outside; }, "tern_alloc");
  expect_refused([&](tern_op& op) { op.output = memory + 4; }, "multiple of 64");
  expect_refused([&](tern_op& op) { op.output = memory + 64; }, "overlap");
  expect_refused([](tern_op& op) { op.input = op.output = nullptr; }, "both NULL");
  expect_refused([](tern_op& op) { op.prescale = 0.5f; }, "prescale");
  expect_refused([](tern_op& op) { op.recipe = "raw"; }, "recipe");
  expect_refused(nothing, "for all_reduce", tern_broadcast);
  expect_refused(nothing, "for all_reduce", tern_reduce);
  EXPECT_TRUE(daemon.seen().empty());
}

// Their memory is as long as the slots are, and not as the elements.
TEST_F(BlocksTest, MayNotLieInTheMemoryOfAnotherOpOfTheirBatch) {
  tern_tensor* tensor = nullptr;
  ASSERT_EQ(declare_blocks(&tensor), TERN_OK);
  const tern_block_layout layout = layout_of(tensor);
  std::byte* const memory = slots(layout);
  tern_op blocks = TERN_OP_INIT;
  blocks.tensor = tensor;
  blocks.input = blocks.output = memory;
  tern_op elements = TERN_OP_INIT;
  elements.count = 16;
  elements.input = elements.output = memory + layout.chunks * layout.slot_bytes - 64;
  const tern_batch_op ops[] = {{TERN_OP_ALL_REDUCE, 0, &blocks},
                               {TERN_OP_ALL_REDUCE, 0, &elements}};
  tern_batch batch = TERN_BATCH_INIT;
  batch.ops = ops;
  batch.count = 2;
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_submit_batch(group, &batch, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(tern_error_detail(), "overlap"), nullptr) << tern_error_detail();
}

}  // namespace
}  // namespace tern::testing
