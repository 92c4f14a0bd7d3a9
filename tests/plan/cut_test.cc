#include "plan/cut.h"

#include <gtest/gtest.h>

#include "plan/plans.h"

namespace tern::plan::cut_test {
namespace {

constexpr std::uint32_t kNodes = 8;

Place place(shm::CutVersion version) {
  return {.tensor = 16, .chunk_bytes = 256 << 10, .version = version, .nodes = kNodes, .lanes = 2};
}

TEST(Cut, OfOneOwnerHasNoMoreChunksThanItNeeds) {
  const Portions portions{.count = 4 * shm::kChunkUnit};
  const auto chunks_of = [&](const Plan& plan, shm::CutVersion version) {
    return cut(plan, portions, place(version)).chunk_count;
  };
  EXPECT_EQ(chunks_of(kAllReduce, shm::CutVersion::even), 4u);
  EXPECT_EQ(chunks_of(kAllReduce, shm::CutVersion::fine), kNodes);
  EXPECT_EQ(chunks_of(kReduce, shm::CutVersion::fine), 4u);
  EXPECT_EQ(chunks_of(kReduce, shm::CutVersion::full), 1u);
}

}  // namespace
}  // namespace tern::plan::cut_test
