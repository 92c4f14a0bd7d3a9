#include <gtest/gtest.h>

#include "cuda/include/tern/cuda.h"

extern "C" unsigned tern_cuda_sizes_of_c(void);

namespace tern::cuda {
namespace c_abi_test {

static_assert(sizeof(tern_cuda_options) == 24);
static_assert(sizeof(tern_cuda_op) == 40);
static_assert(sizeof(tern_cuda_stats) == 80);

TEST(CudaHeader, IsTheSameInC) { EXPECT_EQ(tern_cuda_sizes_of_c(), 24u + 40u + 80u); }

TEST(CudaHeader, NullIsRefusedOrIgnored) {
  EXPECT_EQ(tern_cuda_open(nullptr, nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_STRNE(tern_cuda_error_detail(), "");
  EXPECT_EQ(tern_cuda_close(nullptr), TERN_OK);
  EXPECT_EQ(tern_cuda_tensor_release(nullptr), TERN_OK);
  EXPECT_EQ(tern_cuda_get_stats(nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_cuda_tensor_bind(nullptr, nullptr, nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_cuda_all_reduce(nullptr, nullptr, nullptr, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_cuda_tensor_export_state(nullptr, nullptr, 0, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_cuda_tensor_import_state(nullptr, nullptr, nullptr, 0), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_cuda_wait(nullptr, 1, 0), TERN_ERR_INVALID_ARGUMENT);
}

}  // namespace c_abi_test
}  // namespace tern::cuda
