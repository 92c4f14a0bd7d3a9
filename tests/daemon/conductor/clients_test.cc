#include "daemon/conductor/clients.h"

#include <latch>
#include <thread>
#include <utility>

#include "daemon/tuning/replay_reading.h"
#include "part_rig.h"
#include "tests/daemon/service/log_lines.h"

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

TEST_F(ClientsTest, HaveLabelsThatNothingCanHideIn) {
  auto packet = hello();
  std::strcpy(packet.job, "Prod/resnet-50_v1.5:run@node+2=x");
  EXPECT_TRUE(clients_.check_hello(packet));
  const std::pair<const char*, const char*> wrong[] = {
      {"a\nternd: b", "0x0a"},
      {"\x1b[2J", "0x1b"},
      {"two words", "0x20"},
      // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
      {"\xe2\x80\xae"
       "gnp",
       "0xe2"},
      {"a*", "0x2a"}};
  for (const auto& [job, byte] : wrong) {
    std::strcpy(packet.job, job);
    const Status sound = clients_.check_hello(packet);
    ASSERT_FALSE(sound) << byte;
    EXPECT_EQ(sound.error().code, Errc::invalid_argument);
    EXPECT_EQ(sound.error().text, "the job's label has the byte " + std::string(byte) +
                                      "; it may have letters (a-z, A-Z), digits and ._-:@+=/");
  }
}

TEST_F(ClientsTest, ThatComeAndGoWithoutEndHaveFewLinesAndACount) {
  const LogLines lines;
  for (std::uint64_t id = 1; id <= 1'000; ++id) {
    Client& client = greet(connect(id, kAlice));
    clients_.let_go(client, "it disconnected");
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) clients_.on_dropped(*client.memory);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }
  EXPECT_EQ(lines.seen().size(), 128u);
  greet(connect(2'000, kBob));
  EXPECT_EQ(lines.seen().size(), 129u);
  log_.tell_left_out();
  ASSERT_EQ(lines.seen().size(), 130u);
  EXPECT_EQ(lines.seen().back(),
            "1872 more lines about clients that came or went were left out: uid 1001");
  greet(connect(2'001, kAlice));
  log_.tell_left_out();  // a second has not passed
  EXPECT_EQ(lines.seen().size(), 130u);
  clock_.advance_ns(kSecond);
  greet(connect(2'002, kAlice));
  log_.tell_left_out();
  EXPECT_EQ(lines.seen().size(), 132u);
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
  client.goodbye = 9;
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

TEST_F(ClientsTest, AGoodbyeOfOneThatHasClosedItsConnectionIsNotAnswered) {
  Client& client = greet(connect(1));
  client.goodbye = 9;
  client.presence = ClientPresence::closed;
  clients_.let_go(client, "it disconnected");
  clients_.on_dropped(*client.memory);
  clients_.on_dropped(*client.memory);
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_FALSE(answer_to(9));
}

// Clients beside a disposal with threads.
class WaitingClients : public ClientsTest {
 protected:
  Client& open() {
    shm::PeerCredentials credentials;
    credentials.uid = kAlice;
    clients.add(clients.make(1, std::move(credentials)));
    auto packet = hello();
    packet.arena_bytes = 200 << 20;  // several parts
    Client& client = *clients.find(1);
    EXPECT_TRUE(clients.open(client, packet));
    return client;
  }
  // Until may_end, the user has a thing that takes its time.
  void keep_busy(Disposal& with) {
    with.take(kAlice, [&] {
      begun.count_down();
      may_end.wait();
      return false;
    });
    begun.wait();
  }

  std::latch begun{1}, may_end{1};
  Disposal disposal, sealing;
  Clients clients{
      settings_,
      {clock_, counters_, answers_, commands_, post_, disposal, sealing, reading_, log_}};
};

// A hole that is being punched would put to sleep who touches the rings.
TEST_F(WaitingClients, AreUnknownToLanesUntilTheirMemoryIsSealed) {
  Client& client = open();
  EXPECT_EQ(clients.take_ready(), nullptr) << "it has not said that it has mapped its memory";
  keep_busy(sealing);
  EXPECT_FALSE(clients.admit(client));
  EXPECT_FALSE(clients.admit(client)) << "still under way";
  EXPECT_EQ(clients.take_ready(), nullptr);
  EXPECT_LE(clients.next_deadline_ns(), clock_.now_ns() + 1'000'000);
  EXPECT_TRUE(commands_of(0).empty());
  may_end.count_down();
  Client* sealed = nullptr;
  while ((sealed = clients.take_ready()) == nullptr) std::this_thread::yield();
  EXPECT_EQ(sealed, &client);
  EXPECT_TRUE(clients.admit(client));
  EXPECT_EQ(commands_of(0).size(), 1u);
  EXPECT_EQ(clients.take_ready(), nullptr);
}

TEST_F(WaitingClients, MayHaveManyRequestsThatWaitForTheSealAndNotAnyNumber) {
  Client& client = open();
  const std::vector<std::byte> request(64);
  std::size_t held = 0;
  while (Clients::hold(client, request)) ++held;
  EXPECT_EQ(held, 256u);
  EXPECT_EQ(client.held.size(), held);
}

TEST_F(WaitingClients, ThatGoBeforeTheSealAreForgottenAtOnce) {
  Client& client = open();
  keep_busy(sealing);
  EXPECT_FALSE(clients.admit(client));
  clients.let_go(client, "its process ended");
  EXPECT_EQ(clients.find(1), nullptr);
  may_end.count_down();
  EXPECT_EQ(clients.take_ready(), nullptr);
  EXPECT_TRUE(commands_of(0).empty());
}

// To free an arena may take seconds; the conductor goes on.
TEST_F(WaitingClients, LeaveTheirMemoryToTheDisposal) {
  Client& client = open();
  keep_busy(disposal);
  while (!clients.admit(client)) std::this_thread::yield();  // whatever else is stuck
  clients.let_go(client, "it disconnected");
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) clients.on_dropped(*client.memory);
  EXPECT_EQ(clients.find(1), nullptr);
  EXPECT_EQ(disposal.count(), 2u) << "the memory waits";
  may_end.count_down();
}

// A log may be long, and its disk slow.
TEST_F(ClientsTest, ForWhomALogIsReadAreToldOfWhenItHasBeenRead) {
  Client& client = greet(connect(1));
  const std::vector<std::byte> first{std::byte{1}}, second{std::byte{2}}, third{std::byte{3}};
  client.reading = std::make_shared<ReplayReading>(ReplayTerms{}, std::vector<std::string>{});
  clients_.hold_for_log(client, first);
  EXPECT_TRUE(Clients::hold(client, second));
  clients_.hold_rest(client, {third});
  EXPECT_EQ(clients_.take_ready(), nullptr) << "it is being read";
  EXPECT_LE(clients_.next_deadline_ns(), clock_.now_ns() + 1'000'000);
  client.reading->read();
  ASSERT_EQ(clients_.take_ready(), &client);
  EXPECT_EQ(std::exchange(client.held, {}), (std::vector{first, second, third})) << "in order";
  EXPECT_EQ(clients_.take_ready(), nullptr);
}

// Those for which a turn had no time: others come first.
TEST_F(ClientsTest, WhoseRequestsAreLeftAreToldOfInTurnAndOnceEach) {
  Client& first = greet(connect(1));
  Client& second = greet(connect(2));
  Client& third = greet(connect(3));
  EXPECT_EQ(clients_.take_ready(), nullptr) << "nobody's requests wait";
  const std::vector<std::vector<std::byte>> requests{{std::byte{1}}, {std::byte{2}}};
  clients_.hold_rest(first, requests);
  clients_.hold_rest(second, requests);
  clients_.hold_rest(third, requests);
  EXPECT_LE(clients_.next_deadline_ns(), clock_.now_ns() + 1'000'000);
  ASSERT_EQ(clients_.take_ready(), &first);
  EXPECT_EQ(std::exchange(first.held, {}), requests);
  clients_.hold_rest(first, {requests[1]});
  ASSERT_EQ(clients_.take_ready(), &second);
  third.presence = ClientPresence::dropped;  // what it has asked is for nobody
  ASSERT_EQ(clients_.take_ready(), &first);
  EXPECT_EQ(first.held.size(), 1u);
  EXPECT_EQ(clients_.take_ready(), nullptr);
}

TEST_F(ClientsTest, WithoutMemoryAreForgottenAtOnce) {
  clients_.let_go(connect(1), "it did not say hello");
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(port_.disconnected, std::vector<std::uint64_t>{1});
}

}  // namespace
}  // namespace tern::daemon::conductor_test
