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

// Residuals belong to chunks: whoever moves a tensor's state must find those of its operations.
TEST(Cut, OfATensorsStateIsThatOfItsOperations) {
  for (const std::uint64_t count :
       {std::uint64_t{1000}, 5 * shm::kChunkUnit, 9 * shm::kChunkUnit}) {
    for (const Plan* const plan : {&kAllReduce, &kReduce, &kReduceScatter, &kBroadcast}) {
      SCOPED_TRACE(std::string(plan->name) + " of " + std::to_string(count));
      Shape shape{.count = count, .ranks = kNodes};
      Portions portions{.count = count};
      if (plan->has_shares()) {
        portions.shares = kNodes;
        portions.largest_share = count / kNodes;
      }
      for (const auto version :
           {shm::CutVersion::full, shm::CutVersion::even, shm::CutVersion::fine}) {
        const shm::Sharding of_op = cut(*plan, shape, place(version));
        const shm::Sharding of_state = cut(*plan, portions, place(version));
        EXPECT_EQ(of_state.chunk_count, of_op.chunk_count);
        EXPECT_EQ(of_state.chunk_elements, of_op.chunk_elements);
        EXPECT_EQ(of_state.columns, of_op.columns);
        EXPECT_EQ(of_state.version, of_op.version);
      }
    }
  }
}

}  // namespace
}  // namespace tern::plan::cut_test
