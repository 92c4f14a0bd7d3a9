#include "client_lib/requests.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

namespace tern::client_lib {
namespace {

using shm::PacketKind;

// The test is the daemon, and reads when it likes.
class RequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto ends = shm::PacketSocket::make_pair();
    ASSERT_TRUE(ends);
    daemon = std::move(ends->second);
    same_socket = shm::PacketSocket(Fd(::dup(ends->first.fd())));
    requests.emplace(std::move(ends->first));
  }

  Result<shm::RegionCreatedPacket> create_region(std::int64_t timeout_ms) {
    return requests->ask<shm::RegionCreatedPacket>(
        shm::make_packet<shm::RegionCreatePacket>(PacketKind::region_create, 0),
        PacketKind::region_created, Deadline::after_ms(timeout_ms));
  }
  void post_release() {
    requests->post(shm::make_packet<shm::TensorReleasePacket>(PacketKind::tensor_release, 0));
  }
  void fill_socket() {
    const auto filler = shm::make_packet<shm::DonePacket>(PacketKind::done, 0);
    while (same_socket.send(shm::packet_bytes(filler))) {
    }
  }
  // Of a region whose asker has gone, to a client whose socket is full.
  void answer_late(std::uint32_t region) {
    const auto none = create_region(0);
    ASSERT_FALSE(none);
    ASSERT_EQ(none.error().code, Errc::timeout);
    shm::RegionCreatePacket question{};
    ASSERT_TRUE(shm::read_packet(daemon.receive()->bytes, question));
    fill_socket();
    auto answer = shm::make_packet<shm::RegionCreatedPacket>(PacketKind::region_created,
                                                             question.header.request);
    answer.region = region;
    ASSERT_TRUE(daemon.send(shm::packet_bytes(answer)));
    post_release();  // finds no room either, and takes the answer
  }
  // All but the fillers, up to one of this kind or until there is none. Waits for that kind.
  std::vector<PacketKind> kinds_until(PacketKind last) {
    std::vector<PacketKind> kinds;
    while (kinds.empty() || kinds.back() != last) {
      const auto packet = daemon.receive();
      if (!packet) {
        EXPECT_EQ(packet.error().code, Errc::would_block);
        std::this_thread::yield();
        continue;
      }
      shm::PacketHeader header{};
      std::memcpy(&header, packet->bytes.data(), sizeof header);
      const auto kind = static_cast<PacketKind>(header.kind);
      if (kind != PacketKind::done) kinds.push_back(kind);
      shm::RegionPacket freed{};
      if (kind == PacketKind::region_free && shm::read_packet(packet->bytes, freed)) {
        freed_region = freed.region;
      }
    }
    return kinds;
  }

  shm::PacketSocket daemon, same_socket;
  std::optional<Requests> requests;
  std::uint64_t freed_region = 0;
};

TEST_F(RequestsTest, WhatIsGivenBackWaitsForRoom) {
  answer_late(17);
  std::thread asks([this] { (void)create_region(-1); });
  EXPECT_EQ(kinds_until(PacketKind::region_create),
            (std::vector{PacketKind::tensor_release, PacketKind::region_free,
                         PacketKind::region_create}));
  EXPECT_EQ(freed_region, 17u);
  requests->close(Errc::daemon_lost, "the test is over");
  asks.join();
}

TEST_F(RequestsTest, ATensorThatIsDeclaredTooLateIsReleased) {
  auto declare = shm::make_packet<shm::TensorDeclarePacket>(PacketKind::tensor_declare, 0);
  declare.group = 5;
  const auto none = requests->ask<shm::TensorDeclaredPacket>(declare, PacketKind::tensor_declared,
                                                             Deadline::after_ms(0));
  ASSERT_FALSE(none);
  ASSERT_EQ(none.error().code, Errc::timeout);
  shm::TensorDeclarePacket question{};
  ASSERT_TRUE(shm::read_packet(daemon.receive()->bytes, question));
  auto answer = shm::make_packet<shm::TensorDeclaredPacket>(PacketKind::tensor_declared,
                                                            question.header.request);
  answer.tensor = 99;
  ASSERT_TRUE(daemon.send(shm::packet_bytes(answer)));
  std::thread asks([this] { (void)create_region(-1); });  // and takes the answer first
  shm::TensorReleasePacket released{};
  const auto next = [this] {
    for (;;) {
      if (auto packet = daemon.receive()) return packet->bytes;
      std::this_thread::yield();
    }
  };
  EXPECT_TRUE(shm::read_packet(next(), released));
  EXPECT_EQ(released.header.kind, static_cast<std::uint16_t>(PacketKind::tensor_release));
  EXPECT_EQ(released.group, 5u);
  EXPECT_EQ(released.tensor, 99u);
  requests->close(Errc::daemon_lost, "the test is over");
  asks.join();
}

TEST_F(RequestsTest, AReleaseThatFindsNoRoomGoesWithTheNextPacket) {
  fill_socket();
  post_release();
  while (daemon.receive()) {
  }
  post_release();
  EXPECT_EQ(kinds_until(PacketKind::tensor_release), (std::vector{PacketKind::tensor_release}));
  EXPECT_EQ(kinds_until(PacketKind::tensor_release), (std::vector{PacketKind::tensor_release}));
}

TEST_F(RequestsTest, AQuestionThatWasNotSentHasNoLateAnswer) {
  constexpr std::uint64_t kFirstRequest = 1;
  fill_socket();
  const auto none = create_region(0);
  ASSERT_FALSE(none);
  ASSERT_EQ(none.error().code, Errc::timeout);
  while (daemon.receive()) {
  }
  auto answer =
      shm::make_packet<shm::RegionCreatedPacket>(PacketKind::region_created, kFirstRequest);
  answer.region = 17;
  ASSERT_TRUE(daemon.send(shm::packet_bytes(answer)));
  post_release();  // takes the answer
  post_release();
  EXPECT_EQ(kinds_until(PacketKind::tensor_release), (std::vector{PacketKind::tensor_release}));
  EXPECT_EQ(kinds_until(PacketKind::tensor_release), (std::vector{PacketKind::tensor_release}));
}

TEST_F(RequestsTest, WhatIsGivenBackGoesWithTheNextPacket) {
  answer_late(17);
  while (daemon.receive()) {
  }
  post_release();
  EXPECT_EQ(kinds_until(PacketKind::tensor_release), (std::vector{PacketKind::tensor_release}));
  EXPECT_EQ(kinds_until(PacketKind::tensor_release),
            (std::vector{PacketKind::region_free, PacketKind::tensor_release}));
}

}  // namespace
}  // namespace tern::client_lib
