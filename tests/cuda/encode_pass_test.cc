// A tensor whose recipe is another for each operation: kernels and the processor write the same
// slots, and remember the same.

#include "cuda/encode_pass.h"

#include <limits>

#include "blocks/contributions.h"
#include "codec/workspace.h"
#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace encode_pass_test {

constexpr std::uint64_t kCount = 5 * 1024 + 100;  // chunks 1, 3 and 5 are the other node's

tern_block_layout tuned_layout() {
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  layout.count = kCount;
  layout.chunk_elements = 1024;
  layout.chunks = 6;
  layout.slot_bytes = 32 + 1024 * 4 + 2048;
  layout.most_block_bytes = layout.slot_bytes;
  layout.nodes = 2;
  layout.is_tuned = 1;
  return layout;
}

struct Step {
  const char* recipe;
  float state_scale = 1.0f;
  std::uint32_t raw_first = 0;
  bool succeeds = true;
  bool is_sum = true;
  bool has_nan = false;  // in the second of the other node's chunks
};

class CudaEncodePass : public testing::Test {
 protected:
  CudaEncodePass() {
    bool pin_failed = false;
    auto slots = TensorSlots::create(gpu_.driver(), client_.client(), map_.bytes(), pin_failed);
    EXPECT_TRUE(slots.has_value());
    slots_ = std::move(*slots);
    residual_ = std::move(*Residual::create(device_, map_));
    owed_ = std::make_unique<Owed>(device_, map_, *slots_, *residual_);
    put(std::vector<float>(kCount, 0.0f));
    pass_ = std::move(*EncodePass::create(
        {device_, map_, *slots_, residual_.get(), owed_.get(), layout_.most_block_bytes, true},
        {}));
    input_ =
        std::move(*gpu::DeviceArray::allocate(gpu_.driver(), kCount * sizeof(float), stream()));
    gpu_.run(stream());
  }

  static gpu::Stream stream() { return FakeGpu::stream(); }

  void put(const std::vector<float>& floats) {
    EXPECT_TRUE(residual_->put(floats, stream()));
    EXPECT_TRUE(gpu_.fake().run(stream()));
  }
  std::vector<float> residual() {
    std::vector<float> floats(kCount, -1.0f);
    EXPECT_TRUE(residual_->take(floats, stream()));
    EXPECT_TRUE(gpu_.fake().run(stream()));
    return floats;
  }
  std::vector<float> expected_residual() const {
    std::vector<float> floats(kCount, -1.0f);
    // The processor has none before it is needed.
    for (const ChunkPlace& chunk : map_.chunks()) {
      const auto begin = floats.begin() + static_cast<std::ptrdiff_t>(chunk.begin);
      if (chunk.contributed) std::fill_n(begin, chunk.elements, 0.0f);
    }
    expected_.write_residual(floats);
    return floats;
  }
  tern_encoded told() { return *pass_->told(0); }
  // By kernels and by the processor.
  void run(const Step& step) {
    auto values = gaussian(kCount, ++use_);
    if (step.has_nan) values[3 * 1024 + 5] = std::numeric_limits<float>::quiet_NaN();
    encode_here(step, values);
    EXPECT_TRUE(
        gpu::copy_up(gpu_.driver(), input_->address(), std::as_bytes(std::span(values)), stream()));
    pass_->change_recipe(DeviceRecipe::of(step.recipe).value_or(DeviceRecipe()));
    ASSERT_TRUE(pass_->enqueue(
        {input_->address(), step.state_scale, use_, step.raw_first, step.is_sum}, stream()));
    ASSERT_TRUE(gpu_.fake().run(stream()));
    const std::size_t not_finite = pass_->read_outcomes();
    EXPECT_EQ(not_finite != 0, step.has_nan && told().elements != 0);
    ASSERT_TRUE(pass_->pay_back(*own_stream_));
    ASSERT_TRUE(pass_->lower(stream()));
    ASSERT_TRUE(gpu_.fake().run(stream()));
    pass_->write_raw_headers();
    if (step.succeeds) pass_->commit();
    compare();
  }
  void encode_here(const Step& step, const std::vector<float>& values) {
    expected_.change_recipe(
        codec::parse_recipe(DeviceRecipe::of(step.recipe) ? step.recipe : "raw").value());
    lost_ = expected_.encode(std::as_bytes(std::span(values)),
                             {step.is_sum ? Reduction::sum : Reduction::max, 1.0f, step.state_scale,
                              use_, step.raw_first},
                             expected_slots_, workspace_);
    if (!step.succeeds) expected_.take_back();
  }
  void compare() {
    for (const ChunkPlace& chunk : map_.chunks()) {
      const std::byte* const got = slots_->block(chunk);
      const std::byte* const want = expected_slots_.data() + chunk.slot;
      wire::BlockHeader header;
      std::size_t begin = wire::kBlockHeaderBytes;
      std::size_t bytes = chunk.elements * sizeof(float);
      if (chunk.contributed) {
        ASSERT_EQ(wire::parse_block_header({want, wire::kBlockHeaderBytes}, header),
                  wire::BlockError::none);
        begin = 0;
        bytes = wire::kBlockHeaderBytes + header.payload_bytes;
      }
      EXPECT_EQ(std::memcmp(got + begin, want + begin, bytes), 0) << "chunk " << chunk.number;
    }
    EXPECT_EQ(bits_of(residual()), bits_of(expected_residual()));
    EXPECT_EQ(told().elements, lost_.elements);
    EXPECT_EQ(told().energy, lost_.energy);
    EXPECT_EQ(told().residual_energy, lost_.residual_energy);
  }

  FakeGpu gpu_;
  std::unique_ptr<gpu::Kernels> kernels_ = std::move(*gpu::Kernels::load(gpu_.driver(), "image"));
  Device device_{gpu_.driver(), *kernels_};
  Node client_{daemons()[0], new_job()};
  std::unique_ptr<gpu::OwnStream> own_stream_ = std::move(*gpu::OwnStream::create(gpu_.driver()));
  const tern_block_layout layout_ = tuned_layout();
  ChunkMap map_ = *ChunkMap::of(layout_);
  std::unique_ptr<TensorSlots> slots_;
  std::unique_ptr<Residual> residual_;
  std::unique_ptr<Owed> owed_;
  std::unique_ptr<EncodePass> pass_;
  std::unique_ptr<gpu::DeviceArray> input_;
  std::uint64_t use_ = 0;
  // The same on the processor.
  const blocks::Layout same_layout_{layout_};
  blocks::Contributions expected_{same_layout_, codec::parse_recipe("raw").value()};
  std::vector<std::byte> expected_slots_ = std::vector<std::byte>(same_layout_.bytes());
  blocks::Lost lost_;
  codec::Workspace workspace_;
};

TEST_F(CudaEncodePass, GoesByAnotherRecipeEachTime) {
  for (const char* recipe :
       {"raw", "ef(3lc:s=1,scale=4096)", "ef(int:bits=4)", "ef(bf16)", "ef(int:bits=8)",
        "ef(3lc:s=1.75,scale=4096)", "raw", "raw", "ef(int:bits=4)"}) {
    SCOPED_TRACE(recipe);
    run({recipe});
  }
}

TEST_F(CudaEncodePass, PaysBackWhatIsOwedWithTheFirstBlockThatLosesNothing) {
  run({"ef(3lc:s=1,scale=4096)"});
  EXPECT_NE(residual()[1024], 0.0f);
  run({"raw", 0.5f});
  EXPECT_EQ(residual()[1024], 0.0f);
  run({"raw"});
}

// There are no kernels for it: the daemon takes a raw block for any recipe.
TEST_F(CudaEncodePass, TakesARecipeWithoutKernelsForRaw) {
  run({"ef(int:bits=4)"});
  EXPECT_EQ(told().all_raw, 0u);
  run({"ef(topk:p=0.05+int:bits=8)"});
  EXPECT_EQ(told().all_raw, 1u);
  EXPECT_EQ(residual()[1024], 0.0f);
}

// A block of threads has no room for them; the tuner may try such a recipe while one binds.
TEST_F(CudaEncodePass, WhatItsChunksAreTooLargeForGoesRawWhereTheTunerChooses) {
  tern_block_layout layout = tuned_layout();
  layout.count = std::uint64_t{2} * 65536;
  layout.chunks = 2;
  layout.chunk_elements = 65536;
  layout.slot_bytes = layout.most_block_bytes = 32 + 65536 * 4 + 2048;
  const ChunkMap map = *ChunkMap::of(layout);
  bool pin_failed = false;
  auto slots = TensorSlots::create(gpu_.driver(), client_.client(), map.bytes(), pin_failed);
  ASSERT_TRUE(slots.has_value());
  const auto residual = std::move(*Residual::create(device_, map));
  Owed owed(device_, map, **slots, *residual);
  EncodePass::Parts parts{device_, map, **slots, residual.get(), &owed, layout.most_block_bytes,
                          true};
  const DeviceRecipe recipe = *DeviceRecipe::of("int:bits=8");
  EXPECT_TRUE(EncodePass::create(parts, recipe).has_value());
  parts.owed = nullptr;
  EXPECT_FALSE(EncodePass::create(parts, recipe).has_value());
}

// The tuner would take every recipe for one that this node has no kernels for.
TEST_F(CudaEncodePass, OfNoContributionSaysNothingOfItsKernels) {
  tern_block_layout layout = tuned_layout();
  layout.count = 1024;
  layout.chunks = 1;
  const ChunkMap map = *ChunkMap::of(layout);
  ASSERT_EQ(map.contributed_elements(), 0u);
  bool pin_failed = false;
  auto slots = TensorSlots::create(gpu_.driver(), client_.client(), map.bytes(), pin_failed);
  ASSERT_TRUE(slots.has_value());
  auto pass = EncodePass::create(
      {device_, map, **slots, nullptr, nullptr, layout.most_block_bytes, true}, {});
  ASSERT_TRUE(pass.has_value());
  ASSERT_TRUE((*pass)->enqueue({input_->address(), 1.0f, 1, 0, true}, stream()));
  ASSERT_TRUE(gpu_.fake().run(stream()));
  EXPECT_EQ((*pass)->told(0)->all_raw, 0u);
}

TEST_F(CudaEncodePass, SendsTheFirstChunksRawForALookAtTheLink) {
  run({"ef(3lc:s=1,scale=4096)"});
  run({"ef(3lc:s=1,scale=4096)", 1.0f, 2});
  EXPECT_EQ(told().elements, 100u);
}

TEST_F(CudaEncodePass, OfAFailedOperationOwesAsBefore) {
  run({"ef(3lc:s=1,scale=4096)"});
  run({"raw", 1.0f, 0, false});
  EXPECT_NE(residual()[1024], 0.0f);
  run({"ef(int:bits=4)", 1.0f, 0, false});
  run({"raw"});
  EXPECT_EQ(residual()[1024], 0.0f);
}

// What is not finite neither takes nor brings what is owed.
TEST_F(CudaEncodePass, OwesStillWhereAValueIsNotFinite) {
  run({"ef(3lc:s=1,scale=4096)"});
  const float owed = residual()[3 * 1024 + 5];
  run({"raw", 1.0f, 0, true, true, true});
  EXPECT_EQ(residual()[3 * 1024 + 5], owed);
  EXPECT_EQ(residual()[1024], 0.0f);
  run({"ef(int:bits=4)", 1.0f, 0, true, true, true});
  run({"raw"});
}

TEST_F(CudaEncodePass, LeavesWhatIsOwedAloneForAMaximum) {
  run({"ef(3lc:s=1,scale=4096)"});
  const float owed = residual()[1024];
  run({"ef(int:bits=4)", 1.0f, 0, true, false});
  EXPECT_EQ(residual()[1024], owed);
}

TEST_F(CudaEncodePass, OwesWhatCameOutOfAState) {
  const std::vector<float> state(kCount, 2.0f);
  put(state);
  owed_->assume_all();
  expected_.read_residual(state);
  run({"raw"});
  EXPECT_EQ(residual()[1024], 0.0f);
}

}  // namespace encode_pass_test
}  // namespace tern::cuda
