#include "daemon/conductor/clients.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class ClientsTest : public PartRig {
 protected:
  static shm::HelloPacket hello() {
    auto packet = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
    packet.abi_min = packet.abi_max = wire::kShmAbi;
    std::strcpy(packet.job, "job");
    return packet;
  }
};

TEST_F(ClientsTest, AreWelcomedWithTheirMemory) {
  const Client& client = greet(connect(3));
  EXPECT_EQ(client.job, "job");
  ASSERT_EQ(port_.told.size(), 1u);
  EXPECT_EQ(port_.told[0].kind, shm::PacketKind::welcome);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto taken = commands_of(lane);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(std::get<command::AddClient>(taken[0]).client, client.memory.get());
  }
}

TEST_F(ClientsTest, OfAnotherAbiAreToldBoth) {
  auto packet = hello();
  packet.abi_min = packet.abi_max = wire::kShmAbi + 1;
  const Status sound = clients_.check_hello(packet);
  ASSERT_FALSE(sound);
  EXPECT_EQ(sound.error().code, Errc::version_mismatch);
  EXPECT_NE(sound.error().text.find(std::to_string(wire::kShmAbi + 1)), std::string::npos);
}

TEST_F(ClientsTest, NeedALabelThatEnds) {
  auto packet = hello();
  packet.job[0] = '\0';
  EXPECT_FALSE(clients_.check_hello(packet));
  std::memset(packet.job, 'j', sizeof(packet.job));
  EXPECT_FALSE(clients_.check_hello(packet));
  EXPECT_TRUE(clients_.check_hello(hello()));
}

TEST_F(ClientsTest, AreLetInByUserGroupOrSupplementaryGroup) {
  shm::PeerCredentials who;
  who.uid = 1000;
  who.gid = 20;
  EXPECT_EQ(clients_.access_problem(who), "");
  settings_.admission.allowed_uids = {1001};
  EXPECT_NE(clients_.access_problem(who).find("uid 1000"), std::string::npos);
  settings_.admission.allowed_gids = {30};
  EXPECT_NE(clients_.access_problem(who), "");
  who.groups = {30};
  EXPECT_EQ(clients_.access_problem(who), "");
}

TEST_F(ClientsTest, ThatSayNothingAreFoundWhenTheirTimeIsOver) {
  connect(1);
  EXPECT_EQ(clients_.next_deadline_ns(), clock_.now_ns() + settings_.handshake_timeout_ns);
  EXPECT_TRUE(clients_.silent().empty());
  clock_.advance_ns(settings_.handshake_timeout_ns);
  ASSERT_EQ(clients_.silent().size(), 1u);
  greet(*clients_.find(1));
  EXPECT_TRUE(clients_.silent().empty());
}

TEST_F(ClientsTest, AreForgottenWhenAllLanesHaveLetGo) {
  Client& client = greet(connect(1));
  client.goodbye_request = 9;
  clients_.let_go(client, "it disconnected");
  clients_.on_dropped(*client.memory);
  ASSERT_NE(clients_.find(1), nullptr);
  EXPECT_FALSE(answer_to(9));
  clients_.on_dropped(*client.memory);
  EXPECT_EQ(clients_.find(1), nullptr);
  ASSERT_TRUE(answer_to(9));
  EXPECT_EQ(answer_to(9)->status, Errc::ok);
  EXPECT_EQ(port_.disconnected, std::vector<std::uint64_t>{1});
}

TEST_F(ClientsTest, WithoutMemoryAreForgottenAtOnce) {
  clients_.let_go(connect(1), "it did not say hello");
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(port_.disconnected, std::vector<std::uint64_t>{1});
}

}  // namespace
}  // namespace tern::daemon::conductor_test
