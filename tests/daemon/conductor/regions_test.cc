#include "daemon/conductor/regions.h"

#include <fcntl.h>

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class RegionsTest : public PartRig {
 protected:
  RegionsTest() : client_(greet(connect(3))) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }

  Told create(std::uint64_t bytes) {
    auto packet =
        shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, ++request_);
    packet.bytes = bytes;
    regions_.create(client_, packet);
    return *answer_to(request_);
  }
  shm::RegionPacket about(std::uint32_t region) {
    auto packet = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_open, ++request_);
    packet.region = region;
    return packet;
  }
  int settle() { return regions_.settle(bad_); }

  Client& client_;
  Regions regions_{outlets_, clients_, quotas_};
  std::uint64_t request_ = 10;
  std::vector<std::uint64_t> bad_;
};

TEST_F(RegionsTest, AreMadeThenSealedThenShownToLanes) {
  EXPECT_EQ(create(5000).kind, shm::PacketKind::region_created);
  EXPECT_EQ(client_.region_bytes, 8192u) << "whole pages";
  EXPECT_TRUE(commands_of(0).empty()) << "the client may not have mapped it yet";
  regions_.open(client_, about(1));
  EXPECT_FALSE(answer_to(request_).has_value());
  EXPECT_EQ(settle(), 1);
  EXPECT_EQ(answer_to(request_)->status, Errc::ok);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto taken = commands_of(lane);
    ASSERT_EQ(taken.size(), 1u);
    const auto& add = std::get<command::AddRegion>(taken[0]);
    EXPECT_EQ(add.client, 3u);
    EXPECT_EQ(add.region->id, 1u);
    EXPECT_EQ(add.region->segment.arena_bytes(), 8192u);
  }
}

TEST_F(RegionsTest, AreFreedWhenAllLanesHaveLetGo) {
  create(4096);
  regions_.open(client_, about(1));
  settle();
  regions_.free(client_, about(1));
  const std::uint64_t freed = request_;
  regions_.on(event::RegionDropped{3, 1});
  EXPECT_FALSE(answer_to(freed).has_value());
  regions_.free(client_, about(1));
  EXPECT_EQ(answer_to(request_)->status, Errc::invalid_argument) << "it is being freed";
  regions_.on(event::RegionDropped{3, 1});
  EXPECT_EQ(answer_to(freed)->status, Errc::ok);
  EXPECT_EQ(client_.region_bytes, 0u);
  EXPECT_TRUE(client_.regions.empty());
  regions_.on(event::RegionDropped{3, 1});
  regions_.on(event::RegionDropped{99, 1});
}

TEST_F(RegionsTest, ThatNobodyHasOpenedAreFreedAtOnce) {
  create(4096);
  regions_.free(client_, about(1));
  EXPECT_EQ(answer_to(request_)->status, Errc::ok);
  EXPECT_TRUE(commands_of(0).empty());
}

TEST_F(RegionsTest, OfAClientThatIsGoneAreNotOpened) {
  create(4096);
  regions_.open(client_, about(1));
  client_.dropping = true;
  EXPECT_EQ(settle(), 1);
  EXPECT_TRUE(commands_of(0).empty());
  EXPECT_TRUE(bad_.empty());
}

TEST_F(RegionsTest, ThatAClientKeepsFromBeingSealedAreToldOf) {
  create(4096);
  // Another one has sealed the seals before.
  ASSERT_EQ(::fcntl(client_.regions.at(1)->memory.segment.fd(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  regions_.open(client_, about(1));
  settle();
  EXPECT_EQ(bad_, std::vector<std::uint64_t>{3});
  EXPECT_TRUE(commands_of(0).empty());
}

TEST_F(RegionsTest, BeyondTheLimitsAreRefused) {
  settings_.limits.max_arena_bytes = 1 << 20;
  const Told refused = create(1 << 20);
  EXPECT_EQ(refused.status, Errc::quota_exceeded);
  EXPECT_NE(refused.text.find("beside 65536 exceeds max_arena_bytes = 1048576"), std::string::npos)
      << refused.text;
  EXPECT_TRUE(client_.regions.empty());
}

}  // namespace
}  // namespace tern::daemon::conductor_test
