#include "daemon/lane/pass_memories.h"

#include <gtest/gtest.h>

#include <cstring>

#include "group_rig.h"
#include "lane_rig.h"
#include "plan/send.h"

namespace tern::daemon::pass_memories_test {
namespace {

using collective::PassId;
using collective::PassStep;

// Sends of 16 bytes by rank 1, whose arena begins with them.
class PassMemoriesTest : public group_test::OneNode {
 protected:
  PassMemoriesTest() : OneNode({.ranks = {{0, 1}, {2}}}) {
    node.resources.clients.add(client.memory);
  }
  PassId submit() {
    const PassId pass = mailbox.submit({.sends = true,
                                        .local_rank = 1,
                                        .envelope = {1, 2, 7, DType::u8, 16},
                                        .kind = plan::kSend.number});
    PassMemory& memory = memories.begin(pass);
    memory.client = node.resources.clients.find(client.memory.id);
    memory.elements = {&memory.client->arena, 0, 16};
    return pass;
  }

  lane_test::TestClient client{1};
  collective::Mailbox mailbox{node.core.setup().shape};
  PassMemories memories{node.core, mailbox};
};

TEST_F(PassMemoriesTest, WhatRequestsReferToStaysWhereItIs) {
  const PassId first = submit();
  const codec::Recipe* const recipe = &memories[first].recipe;
  while (mailbox.in_flight() < 64) submit();
  EXPECT_EQ(&memories[first].recipe, recipe);
}

TEST_F(PassMemoriesTest, OneThatBeginsKnowsNothingOfTheOneBeforeIt) {
  const PassId pass = submit();
  memories[pass].start(5);
  memories[pass].start(9);
  EXPECT_EQ(memories[pass].started_ns, 5u) << "the first time";
  memories[pass].bytes_sent = 3;
  memories.clear(pass);
  EXPECT_EQ(memories[pass].client, nullptr);
  memories[pass].bytes_sent = 3;
  EXPECT_EQ(memories.begin(pass).bytes_sent, 0u);
}

TEST_F(PassMemoriesTest, APassIsFoundByItsTicketOfItsClient) {
  lane_test::TestClient other{2};
  const LaneClient& stranger = [&]() -> LaneClient& {
    node.resources.clients.add(other.memory);
    return *node.resources.clients.find(other.memory.id);
  }();
  const PassId first = submit(), second = submit();
  memories[first].ticket = 7;
  memories[second].ticket = 8;
  const LaneClient& own = *memories[first].client;
  EXPECT_EQ(memories.find(own, 8), second);
  EXPECT_EQ(memories.find(own, 9), std::nullopt);
  EXPECT_EQ(memories.find(stranger, 8), std::nullopt);
  memories.clear(second);
  EXPECT_EQ(memories.find(own, 8), std::nullopt);
}

TEST_F(PassMemoriesTest, AStepIsAboutItsBytes) {
  const PassId pass = submit();
  for (int i = 0; i < 16; ++i)
    client.memory.segment.arena()[static_cast<std::size_t>(i)] = static_cast<std::byte>(i);
  PassStep step{collective::PassAction::piece, pass};
  EXPECT_TRUE(memories.bytes(pass, step).empty());
  step.offset = 4;
  step.bytes = 8;
  const auto bytes = memories.bytes(pass, step);
  ASSERT_EQ(bytes.size(), 8u);
  EXPECT_EQ(bytes[0], std::byte{4});
}

TEST_F(PassMemoriesTest, ALostPageFailsThePassForTheRankWhoseItIs) {
  const PassId pass = submit();
  EXPECT_FALSE(memories.fail_if_pages_are_lost(pass));
  lane_test::take_first_page(client);
  PassStep step{collective::PassAction::piece, pass};
  step.bytes = 1;
  std::byte read{};
  std::memcpy(&read, memories.bytes(pass, step).data(), 1);
  EXPECT_TRUE(memories.fail_if_pages_are_lost(pass));
  EXPECT_EQ(mailbox.pass(pass).state, collective::PassState::ended);
  EXPECT_EQ(mailbox.pass(pass).outcome.code, Errc::rank_lost);
  EXPECT_EQ(mailbox.pass(pass).outcome.about_rank, 1u);
}

}  // namespace
}  // namespace tern::daemon::pass_memories_test
