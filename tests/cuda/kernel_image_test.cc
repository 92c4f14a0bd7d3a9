#include "cuda/kernel_image.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "tests/cuda/nodes.h"

namespace tern::cuda {
namespace kernel_image_test {

// Which of the two this build has is nvcc's.
TEST(KernelImage, IsAFatBinaryOrMissedWithAWayOut) {
  const void* const image = kernel_image();
  if (image != nullptr) {
    std::uint32_t magic = 0;
    std::memcpy(&magic, image, sizeof magic);
    EXPECT_EQ(magic, 0xba55ed50u);
  }
  FakeGpu gpu;
  const Node node(daemons()[0], new_job());
  tern_cuda_options options = gpu.options();
  options.image = nullptr;
  tern_cuda* cuda = nullptr;
  const tern_status status = tern_cuda_open(node.client(), &options, &cuda);
  EXPECT_EQ(status, image != nullptr ? TERN_OK : TERN_ERR_UNSUPPORTED);
  if (image == nullptr) {
    EXPECT_THAT(tern_cuda_error_detail(), testing::HasSubstr("has no kernels"));
  }
  EXPECT_EQ(tern_cuda_close(cuda), TERN_OK);
}

}  // namespace kernel_image_test
}  // namespace tern::cuda
