// Tensors with client_blocks, as a program sees them: the layout, and what is refused before the
// daemon hears of it. What becomes of blocks is in tests/sim and tests/blocks.

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "shm/encoded_by.h"
#include "shm/sharding.h"
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
  expect_refused(nothing, "takes no client_blocks", tern_broadcast);
  expect_refused(nothing, "takes no client_blocks", tern_reduce);
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

// ---- Where the tuner chooses --------------------------------------------------------------------

FakeOptions with_choices(std::vector<std::string> recipes) {
  FakeOptions options = with_blocks(true, 256);
  options.tunes = true;
  options.recipes = std::move(recipes);
  return options;
}

class TunedBlocksTest : public ClientTest {
 protected:
  explicit TunedBlocksTest(std::vector<std::string> recipes = {"raw", "ef(bf16)"})
      : ClientTest(with_choices(std::move(recipes))) {
    daemon.set_ops(Ops::hold);
  }
  tern_status declare() {
    tern_tensor_options options = TERN_TENSOR_OPTIONS_INIT;
    options.name = "t";
    options.count = kCount;
    options.role = TERN_GRADIENT;
    options.recipe = "auto";
    options.client_blocks = 1;
    return tern_tensor_declare(group, &options, &tensor);
  }
  tern_block_layout layout() {
    tern_block_layout said = TERN_BLOCK_LAYOUT_INIT;
    EXPECT_EQ(tern_tensor_get_block_layout(tensor, &said), TERN_OK) << tern_error_detail();
    return said;
  }
  // An operation; the daemon says how the next one is to be encoded, each lane what is given for it.
  shm::SubmitEntry run(std::uint32_t by_first_lane, std::uint32_t by_other_lane,
                       const tern_encoded* encoded = nullptr) {
    if (memory == nullptr) {
      const tern_block_layout said = layout();
      EXPECT_EQ(tern_alloc(client, said.chunks * said.slot_bytes, &memory), TERN_OK);
    }
    tern_op op = TERN_OP_INIT;
    op.tensor = tensor;
    op.input = op.output = memory;
    op.encoded = encoded;
    tern_ticket ticket = 0;
    EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK) << tern_error_detail();
    daemon.await_entries(++ops * 2);
    const Seen seen = daemon.seen().back();
    const std::uint32_t first = shm::first_lane(seen.entry.tensor, 0, 2);
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      shm::CompletionEntry entry{};
      entry.ticket = seen.entry.ticket;
      entry.encode_next_by = lane == first ? by_first_lane : by_other_lane;
      daemon.inject(lane, entry);
    }
    EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK) << tern_error_detail();
    return seen.entry;
  }

  static constexpr std::uint64_t kCount = 1000;
  static constexpr std::uint32_t kByBf16 = shm::EncodedBy{1, 0}.packed();
  tern_tensor* tensor = nullptr;
  void* memory = nullptr;
  std::size_t ops = 0;
};

TEST_F(TunedBlocksTest, AreEncodedAsTheDaemonSaysWithTheOperationBefore) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  EXPECT_EQ(daemon.last_declare().client_blocks, shm::kBlocksByTuner);
  EXPECT_EQ(layout().is_tuned, 1u);
  EXPECT_STREQ(layout().recipe, "raw");
  EXPECT_EQ(run(kByBf16, shm::EncodedBy{0, 0}.packed()).encoded_by,
            (shm::EncodedBy{0, 0}.packed()));
  EXPECT_STREQ(layout().recipe, "ef(bf16)");
  const shm::SubmitEntry second = run(shm::EncodedBy{1, 2}.packed(), 0);
  EXPECT_EQ(second.encoded_by, kByBf16);
  EXPECT_EQ(layout().raw_first, 2u);
  EXPECT_EQ(run(0, 0).encoded_by, (shm::EncodedBy{1, 2}.packed()));
  EXPECT_STREQ(layout().recipe, "ef(bf16)") << "nothing was said: it stays";
}

// A program that has not asked has encoded as it was told last.
TEST_F(TunedBlocksTest, AreSaidToBeByWhatTheProgramWasTold) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  run(kByBf16, 0);
  EXPECT_EQ(run(kByBf16, 0).encoded_by, (shm::EncodedBy{0, 0}.packed()));
  (void)layout();
  EXPECT_EQ(run(kByBf16, 0).encoded_by, kByBf16);
}

// One of an older header does not know that recipes change, nor that something is to be paid back.
TEST_F(TunedBlocksTest, OfAnOlderProgramStayRaw) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  run(kByBf16, 0);
  tern_block_layout older = TERN_BLOCK_LAYOUT_INIT;
  older.struct_size = 152;
  ASSERT_EQ(tern_tensor_get_block_layout(tensor, &older), TERN_OK);
  EXPECT_STREQ(older.recipe, "raw");
  EXPECT_EQ(run(kByBf16, 0).encoded_by, (shm::EncodedBy{0, 0}.packed()));
}

TEST_F(TunedBlocksTest, SayThatAllWentRaw) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  run(kByBf16, 0);
  (void)layout();
  tern_encoded encoded = TERN_ENCODED_INIT;
  encoded.all_raw = 1;
  EXPECT_EQ(run(0, 0, &encoded).encoded_by, (shm::EncodedBy{0, 0}.packed()));
}

TEST_F(TunedBlocksTest, AreNotEncodedByWhatTheDaemonCannotMean) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  run(kByBf16, 0);
  for (const std::uint32_t nonsense : {3u, 0x100u, 0x10002u, ~0u}) {
    run(nonsense, 0);
    EXPECT_STREQ(layout().recipe, "ef(bf16)") << nonsense;
  }
}

TEST_F(TunedBlocksTest, CarryWhatTheTunerCannotSee) {
  ASSERT_EQ(declare(), TERN_OK) << tern_error_detail();
  tern_encoded encoded = TERN_ENCODED_INIT;
  encoded.elements = 900;
  encoded.energy = 12.5;
  encoded.residual_energy = 0.25;
  encoded.encode_ns = 77;
  const shm::SubmitEntry entry = run(0, 0, &encoded);
  EXPECT_EQ(entry.encoded_elements, 900u);
  EXPECT_EQ(std::bit_cast<double>(entry.encoded_energy_bits), 12.5);
  EXPECT_EQ(std::bit_cast<double>(entry.encoded_residual_bits), 0.25);
  EXPECT_EQ(entry.encoded_ns, 77u);
  encoded.struct_size = 8;
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor;
  op.input = op.output = memory;
  op.encoded = &encoded;
  tern_ticket ticket = 0;
  EXPECT_EQ(tern_all_reduce(group, &op, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(tern_error_detail(), "encoded.struct_size"), nullptr);
}

// Of a fixed recipe the daemon wants to know nothing.
TEST_F(BlocksTest, OfAWrittenRecipeSayNothingOfTheirEncoding) {
  tern_tensor* tensor = nullptr;
  ASSERT_EQ(declare_blocks(&tensor), TERN_OK);
  const tern_block_layout layout = layout_of(tensor);
  EXPECT_EQ(layout.is_tuned, 0u);
  tern_encoded encoded = TERN_ENCODED_INIT;
  encoded.energy = 1.0;
  tern_op op = TERN_OP_INIT;
  op.tensor = tensor;
  op.input = op.output = slots(layout);
  op.encoded = &encoded;
  tern_ticket ticket = 0;
  ASSERT_EQ(tern_all_reduce(group, &op, &ticket), TERN_OK) << tern_error_detail();
  daemon.await_entries(1);
  EXPECT_EQ(daemon.seen().front().entry.encoded_by, 0u);
  EXPECT_EQ(daemon.seen().front().entry.encoded_energy_bits, 0u);
  EXPECT_EQ(tern_wait(client, ticket, TERN_FOREVER), TERN_OK);
  // Elements are encoded by nobody before.
  float elements[4] = {};
  tern_op plain = TERN_OP_INIT;
  plain.input = plain.output = elements;
  plain.count = 4;
  plain.encoded = &encoded;
  EXPECT_EQ(tern_all_reduce(group, &plain, &ticket), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(tern_error_detail(), "client_blocks"), nullptr);
}

class ImpossibleRecipesTest : public TunedBlocksTest,
                              public ::testing::WithParamInterface<std::vector<std::string>> {
 protected:
  ImpossibleRecipesTest() : TunedBlocksTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Recipes, ImpossibleRecipesTest,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"raw", ""},
                                           std::vector<std::string>(17, "raw")));

TEST_P(ImpossibleRecipesTest, EndTheConnection) { EXPECT_EQ(declare(), TERN_ERR_PROTOCOL_ERROR); }

}  // namespace
}  // namespace tern::testing
