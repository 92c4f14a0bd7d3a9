#include "daemon/conductor/regions.h"

#include <fcntl.h>

#include <latch>

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

// The client has waited for it as long as it waits for anything.
TEST_F(RegionsTest, ThatAreFreedWhileTheyAreSealedAreGoneWithTheSeal) {
  create(4096);
  regions_.open(client_, about(1));
  const std::uint64_t opened = request_;
  regions_.free(client_, about(1));
  const std::uint64_t freed = request_;
  EXPECT_EQ(answer_to(opened)->status, Errc::cancelled);
  EXPECT_FALSE(answer_to(freed).has_value());
  regions_.free(client_, about(1));
  EXPECT_EQ(answer_to(request_)->status, Errc::invalid_argument) << "it is being freed";
  EXPECT_EQ(settle(), 1);
  EXPECT_EQ(answer_to(freed)->status, Errc::ok);
  EXPECT_TRUE(client_.regions.empty());
  EXPECT_EQ(client_.region_bytes, 0u);
  EXPECT_TRUE(commands_of(0).empty()) << "no lane has seen it";
  EXPECT_TRUE(bad_.empty());
}

TEST_F(RegionsTest, OfAClientThatIsGoneAreNotOpened) {
  create(4096);
  regions_.open(client_, about(1));
  client_.presence = ClientPresence::dropped;
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

// Another one of its user's keeps the thread that seals.
TEST_F(RegionsTest, ThatWaitForTheirSealHoldNoDescriptorBeyondTheirClient) {
  std::latch may_end(1);
  Disposal sealing;
  sealing.take(client_.credentials.uid, [&may_end] {
    may_end.wait();
    return false;
  });
  const Outlets outlets{clock_,    counters_, answers_, commands_, post_,
                        disposal_, sealing,   reading_, log_};
  Regions regions(outlets, clients_, quotas_);
  create(4096);
  const int file = client_.regions.at(1)->memory.segment.fd();
  regions.open(client_, about(1));
  EXPECT_EQ(regions.settle(bad_), 0);
  EXPECT_NE(::fcntl(file, F_GETFD), -1);
  const ClientMemory& memory = *client_.memory;
  const std::uint64_t id = client_.id;
  clients_.let_go(client_, "it is gone");
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    ASSERT_NE(clients_.find(id), nullptr);
    clients_.on_dropped(memory);
  }
  EXPECT_EQ(clients_.find(id), nullptr);
  EXPECT_EQ(::fcntl(file, F_GETFD), -1);
  may_end.count_down();
}

// Each holds a descriptor of the daemon until it is sealed.
TEST_F(RegionsTest, ThatNobodyOpensAreFew) {
  for (std::uint64_t i = 0; i < DescriptorBudget::kRegionsNotOpen; ++i) {
    EXPECT_EQ(create(4096).kind, shm::PacketKind::region_created) << i;
  }
  const Told refused = create(4096);
  EXPECT_EQ(refused.status, Errc::quota_exceeded);
  EXPECT_EQ(refused.text,
            "the client has 8 regions that are not open, as many as one may: open or free one");
  regions_.open(client_, about(1));
  EXPECT_EQ(create(4096).status, Errc::quota_exceeded) << "it is not sealed yet";
  settle();
  EXPECT_EQ(create(4096).kind, shm::PacketKind::region_created);
  Client& other = greet(connect(4));
  EXPECT_EQ(quotas_.region_problem(other, 4096), "");
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
