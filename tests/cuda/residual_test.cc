#include "cuda/residual.h"

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace residual_test {

// Three chunks, of which the second one is this node's own.
ChunkMap map_of_three_chunks() {
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  layout.count = 20;
  layout.chunk_elements = 8;
  layout.chunks = 3;
  layout.slot_bytes = 64;
  layout.nodes = 2;
  layout.node = 1;
  return *ChunkMap::of(layout);
}

class CudaResidual : public testing::Test {
 protected:
  CudaResidual() {
    auto made = Residual::create(device_, map_);
    EXPECT_TRUE(made.has_value());
    residual_ = std::move(*made);
    for (std::size_t i = 0; i < given_.size(); ++i) given_[i] = static_cast<float>(i + 1);
    EXPECT_TRUE(residual_->put(given_, stream()));
  }
  static gpu::Stream stream() { return FakeGpu::stream(); }

  std::vector<float> taken() {
    std::vector<float> floats(20, -1.0f);
    EXPECT_TRUE(residual_->take(floats, stream()));
    EXPECT_TRUE(gpu_.fake().run(stream()));
    return floats;
  }
  // As a kernel would.
  void begin_and_change() {
    ASSERT_TRUE(residual_->begin(stream()));
    ASSERT_TRUE(gpu_.fake().run(stream()));
    EXPECT_EQ(residual_->next(map_.chunks()[2])[0], 17.0f);
    residual_->next(map_.chunks()[2])[0] = 100.0f;
  }

  FakeGpu gpu_;
  std::unique_ptr<gpu::Kernels> kernels_ = std::move(*gpu::Kernels::load(gpu_.driver(), "image"));
  Device device_{gpu_.driver(), *kernels_};
  ChunkMap map_ = map_of_three_chunks();
  std::unique_ptr<Residual> residual_;
  std::vector<float> given_ = std::vector<float>(20);
};

TEST_F(CudaResidual, HasTheChunksThatOthersOwn) {
  const auto floats = taken();
  for (std::size_t i = 0; i < floats.size(); ++i) {
    EXPECT_EQ(floats[i], i / 8 == 1 ? -1.0f : given_[i]) << i;
  }
  EXPECT_EQ(residual_->held().device, 24 * sizeof(float));
}

TEST_F(CudaResidual, IsAsBeforeUntilTheOperationHasSucceeded) {
  begin_and_change();
  EXPECT_EQ(taken()[16], 17.0f);
  // One that fails, and one that succeeds.
  begin_and_change();
  residual_->commit();
  EXPECT_EQ(taken()[16], 100.0f);
  EXPECT_EQ(taken()[17], 18.0f);
}

}  // namespace residual_test
}  // namespace tern::cuda
