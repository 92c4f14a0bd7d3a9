#include "cuda/sized_struct.h"

#include <gtest/gtest.h>

namespace tern::cuda {
namespace sized_struct_test {

// As a later header would have it.
struct LaterOptions {
  tern_cuda_options known = TERN_CUDA_OPTIONS_INIT;
  std::uint64_t later = 0;
};

TEST(CudaSizedStruct, ALaterStructIsReadIfItsFieldIsZero) {
  LaterOptions later;
  later.known.struct_size = sizeof later;
  later.known.operations = 7;
  tern_cuda_options known = TERN_CUDA_OPTIONS_INIT;
  ASSERT_TRUE(read_sized(&later.known, "options", known));
  EXPECT_EQ(known.operations, 7u);
  later.later = 1;
  const auto read = read_sized(&later.known, "options", known);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::unsupported);
}

TEST(CudaSizedStruct, ASizeThatNoHeaderHasIsRefused) {
  tern_cuda_options known = TERN_CUDA_OPTIONS_INIT;
  for (const std::uint32_t size : {0u, 16u, 5000u}) {
    tern_cuda_options given = TERN_CUDA_OPTIONS_INIT;
    given.struct_size = size;
    const auto read = read_sized(&given, "options", known);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, Errc::invalid_argument);
  }
}

}  // namespace sized_struct_test
}  // namespace tern::cuda
