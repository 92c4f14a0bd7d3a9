#include "daemon/membership/tensor_travel.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kEagerBytes = 21844;  // 64 KiB by three

class TensorTravel : public ::testing::Test {
 protected:
  TensorTravel() {
    group.chunk_bytes = 256 << 10;
    group.eager_bytes = kEagerBytes;
    group.cut = shm::CutVersion::fine;
    group.eager_form = collective::EagerForm::chunks;
    group.addresses.resize(4);
    tensor.count = (64 << 10) / sizeof(float);
  }

  MemberGroup group;
  TensorState tensor{1};
};

TEST_F(TensorTravel, BetweenWholeAndGrantedOwnersHearTheirChunks) {
  EXPECT_FALSE(travels_whole(group, tensor));
  EXPECT_TRUE(announces_chunks(group, tensor));
  tensor.count = kEagerBytes / sizeof(float);
  EXPECT_TRUE(travels_whole(group, tensor));
  EXPECT_FALSE(announces_chunks(group, tensor));
  tensor.count = 4 * kEagerBytes / sizeof(float) + 1024;
  EXPECT_FALSE(travels_whole(group, tensor));
  EXPECT_FALSE(announces_chunks(group, tensor)) << "a chunk does not fit in an announcement";
}

TEST_F(TensorTravel, NotWhereScalesAreKnownTooLate) {
  tensor.declared.one_lane = true;
  EXPECT_FALSE(announces_chunks(group, tensor));
}

TEST_F(TensorTravel, NotInAGroupOfAnOlderForm) {
  group.eager_form = collective::EagerForm::blocks;
  EXPECT_FALSE(announces_chunks(group, tensor));
  EXPECT_FALSE(travels_whole(group, tensor));
  tensor.count = 1024;
  EXPECT_TRUE(travels_whole(group, tensor));
  group.eager_form = collective::EagerForm::elements;
  EXPECT_FALSE(travels_whole(group, tensor));
}

}  // namespace
}  // namespace tern::daemon
