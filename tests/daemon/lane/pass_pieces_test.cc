// Sends that write out a recipe, as a lane carries them out: their pieces are blocks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "passing_rig.h"

namespace tern::daemon::point_to_point_test {
namespace {

// Whose offer says that its pieces are blocks, of a recv that takes such ones.
class OfALossySend : public OfNode0 {
 protected:
  static constexpr std::uint64_t kCount = 300;  // f32; a chunk has 256

  std::uint64_t submit(const plan::Plan& plan, std::uint64_t count = kCount) {
    shm::SubmitEntry entry{};
    entry.ticket = ++rank.tickets;
    entry.kind = plan.number;
    entry.dtype = static_cast<std::uint8_t>(DType::f32);
    entry.root = 1;
    entry.sequence = 7;
    entry.count = count;
    encoding.lossy = true;
    encoding.recipe = codec::parse_recipe("bf16").value();
    passing.submit({*node(0).resources.clients.find(1), 0, plan, &encoding, true}, entry);
    return entry.ticket;
  }
  // The recv has accepted the offer.
  std::uint64_t accept() {
    const std::uint64_t ticket = submit(plan::kRecv);
    auto payload = offer_payload(kCount, false);
    wire::SendOfferBody body;
    std::memcpy(&body, payload.data(), sizeof(body));
    body.dtype = static_cast<std::uint8_t>(DType::f32);
    body.lossy = 1;
    std::memcpy(payload.data(), &body, sizeof(body));
    EXPECT_TRUE(arrive(header(FrameKind::send_offer), payload));
    run();
    return ticket;
  }
  static std::vector<std::byte> block_of(std::uint32_t elements, std::size_t bytes) {
    std::vector<std::byte> block(wire::kBlockHeaderBytes + bytes, std::byte{0x40});
    const wire::BlockHeader header = codec::raw_block_header(DType::f32, elements, false, 0);
    std::memcpy(block.data(), &header, sizeof(header));
    return block;
  }
  // All has gone as bf16, and the receiver has it.
  void expect_two_blocks_and_the_end(std::uint64_t ticket) {
    const auto pieces = node(1).frames_of(FrameKind::send_piece);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].payload_bytes, wire::kBlockHeaderBytes + 512);
    EXPECT_EQ(pieces[1].payload_bytes, wire::kBlockHeaderBytes + 88);
    EXPECT_TRUE(arrive(header(FrameKind::send_end), {}));
    run();
    expect_end(ticket, Errc::ok);
    node(0).expect_all_memory_is_free();
  }

  OpEncoding encoding;
};

TEST_F(OfALossySend, PiecesThatComeAreReadAsBlocks) {
  const std::uint64_t ticket = accept();
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(256, 1024)));
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(44, 176)));
  run();
  expect_end(ticket, Errc::ok);
  EXPECT_EQ(rank.arena()[1199], std::byte{0x40});
  EXPECT_EQ(rank.arena()[1200], std::byte{0});
}

TEST_F(OfALossySend, PiecesThatGoAreBlocksInSlabs) {
  const std::uint64_t ticket = submit(plan::kSend);
  run();
  const auto offers = node(1).frames_of(FrameKind::send_offer);
  ASSERT_EQ(offers.size(), 1u);
  ASSERT_EQ(offers[0].payload_bytes, sizeof(wire::SendOfferBody)) << "no element goes with it";
  wire::SendOfferBody body;
  const auto& frames = node(1).frames;
  const auto offer = std::find_if(frames.begin(), frames.end(), [](const auto& frame) {
    return frame.header.kind == static_cast<std::uint8_t>(FrameKind::send_offer);
  });
  ASSERT_NE(offer, frames.end());
  std::memcpy(&body, offer->payload.data(), sizeof(body));
  EXPECT_EQ(body.lossy, 1);
  EXPECT_TRUE(arrive(header(FrameKind::send_accept), {}));
  run();
  expect_two_blocks_and_the_end(ticket);
}

TEST_F(OfALossySend, ABlockThatMakesNoSenseFailsItsSendAndNoOther) {
  const auto fails = [&](const std::vector<std::byte>& block, const std::string& why) {
    const std::uint64_t ticket = accept();
    EXPECT_TRUE(arrive(header(FrameKind::send_piece), block));
    run();
    expect_end(ticket, Errc::corrupt_data, "a block of node 1: " + why);
  };
  const std::string sizes = "the block's sizes are not those of a piece";
  fails(block_of(10, 44), sizes);
  fails(block_of(0, 0), sizes);
  auto version = block_of(10, 40);
  version[1] = std::byte{9};
  const std::uint64_t ticket = accept();
  EXPECT_TRUE(arrive(header(FrameKind::send_piece), version));
  run();
  const auto completion = rank.client.next_completion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->ticket, ticket);
  EXPECT_EQ(static_cast<Errc>(completion->status), Errc::corrupt_data);
  EXPECT_EQ(node(0).resources.counters->bad_blocks.load(), 3u);
  EXPECT_EQ(heard(FrameKind::send_end), 3u) << "the sender is told each time";
  const std::uint64_t next = accept();
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(256, 1024)));
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(44, 176)));
  run();
  expect_end(next, Errc::ok);
}

TEST_F(OfALossySend, ABlockOfAnImpossibleSizeEndsTheLinkAndHoldsNothing) {
  const std::uint64_t ticket = accept();
  EXPECT_FALSE(arrive(header(FrameKind::send_piece), std::vector(31, std::byte{})));
  EXPECT_FALSE(arrive(header(FrameKind::send_piece), std::vector(5000, std::byte{})));
  passing.cancel(*node(0).resources.clients.find(1), ticket, {Errc::cancelled, 0, "cancelled"});
  run();
  expect_end(ticket, Errc::cancelled, "cancelled");
  EXPECT_TRUE(passing.mailbox().idle());
}

TEST_F(OfALossySend, ADamagedBlockFailsItsSend) {
  const std::uint64_t ticket = accept();
  EXPECT_TRUE(arrive(header(FrameKind::send_piece), block_of(256, 1024), true));
  run();
  expect_end(ticket, Errc::corrupt_data, "a payload from node 1 did not match its checksum");
}

// As a device would: its blocks are made and read when the test says so.
class HoldingExecutor final : public BlockExecutor {
 public:
  void start(BlockPath& path, std::uint32_t slot) override {
    path_ = &path;
    held.push_back(slot);
  }
  int poll() override { return 0; }
  void drain(BlockPath&) override {
    while (!held.empty()) complete(0);
  }
  void complete(std::size_t place) {
    const std::uint32_t slot = held[place];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
    path_->complete(slot, path_->perform(slot));
  }

  std::vector<std::uint32_t> held;

 private:
  BlockPath* path_ = nullptr;
};

class OfALossySendOnADevice : public OfALossySend {
 protected:
  OfALossySendOnADevice() {
    node(0).resources.executor = &device;
    passing.attach(node(0).resources);
  }
  // The receiver waits for the elements, and the first piece is being made.
  std::uint64_t send() {
    const std::uint64_t ticket = submit(plan::kSend);
    run();
    EXPECT_TRUE(arrive(header(FrameKind::send_accept), {}));
    run();
    return ticket;
  }

  HoldingExecutor device;
};

TEST_F(OfALossySendOnADevice, APieceIsMadeAfterTheOneBeforeItHasBeenSent) {
  const std::uint64_t ticket = send();
  ASSERT_EQ(device.held.size(), 1u);
  EXPECT_EQ(heard(FrameKind::send_piece), 0u);
  device.complete(0);
  run();
  ASSERT_EQ(device.held.size(), 1u);
  EXPECT_EQ(heard(FrameKind::send_piece), 1u);
  device.complete(0);
  run();
  EXPECT_TRUE(device.held.empty());
  expect_two_blocks_and_the_end(ticket);
}

TEST_F(OfALossySendOnADevice, ASendThatFailsEndsWhenNothingIsMadeOfIt) {
  const std::uint64_t ticket = send();
  passing.cancel(*node(0).resources.clients.find(1), ticket, {Errc::cancelled, 0, "enough"});
  run();
  EXPECT_TRUE(arrive(header(FrameKind::send_end), failure_payload(5)));
  run();
  EXPECT_FALSE(rank.client.next_completion().has_value()) << "its memory is being read";
  device.complete(0);
  run();
  EXPECT_EQ(heard(FrameKind::send_piece), 0u);
  expect_end(ticket, Errc::cancelled, "enough");
  node(0).expect_all_memory_is_free();
  EXPECT_TRUE(passing.mailbox().idle());
}

TEST_F(OfALossySendOnADevice, BlocksThatHaveComeAreReadInAnyOrder) {
  const std::uint64_t ticket = accept();
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(256, 1024)));
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(44, 176)));
  EXPECT_FALSE(arrive(header(FrameKind::send_piece), block_of(1, 4))) << "more than was offered";
  ASSERT_EQ(device.held.size(), 2u);
  device.complete(1);
  EXPECT_EQ(rank.arena()[1023], std::byte{0});
  EXPECT_EQ(rank.arena()[1199], std::byte{0x40});
  run();
  EXPECT_FALSE(rank.client.next_completion().has_value());
  device.complete(0);
  run();
  EXPECT_EQ(rank.arena()[1023], std::byte{0x40});
  EXPECT_EQ(rank.arena()[1200], std::byte{0});
  expect_end(ticket, Errc::ok);
}

TEST_F(OfALossySendOnADevice, ARecvThatFailsEndsWhenNothingIsReadForIt) {
  const std::uint64_t ticket = accept();
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(256, 1024)));
  passing.cancel(*node(0).resources.clients.find(1), ticket, {Errc::cancelled, 0, "enough"});
  run();
  EXPECT_FALSE(rank.client.next_completion().has_value()) << "its memory is being written";
  ASSERT_TRUE(arrive(header(FrameKind::send_piece), block_of(44, 176))) << "nobody's by now";
  ASSERT_EQ(device.held.size(), 1u);
  device.complete(0);
  run();
  expect_end(ticket, Errc::cancelled, "enough");
  EXPECT_TRUE(passing.mailbox().idle());
}

// One that knows sends, and none whose pieces are blocks.
class WithANodeThatTakesNoRecipes : public AllNodes {
 protected:
  WithANodeThatTakesNoRecipes()
      : AllNodes({.ranks = {{0}, {1}},
                  .eager_bytes = kEager,
                  .known_features = wire::kFeatureSend | wire::kFeatureLossyMoves}),
        rank(node(1), passing, 1) {}

  PointToPoint passing{node(1).core, node(1).group, node(1).room.offered()};
  PassingRank rank;
};

TEST_F(WithANodeThatTakesNoRecipes, SendsByARecipeAreRefusedByName) {
  OpEncoding encoding;
  shm::SubmitEntry entry{};
  entry.kind = plan::kSend.number;
  entry.ticket = ++rank.tickets;
  entry.count = 8;
  passing.submit({*node(1).resources.clients.find(1), 0, plan::kSend, &encoding, true}, entry);
  const auto completion = rank.client.next_completion();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(static_cast<Errc>(completion->status), Errc::unsupported);
  EXPECT_STREQ(completion->detail,
               "the ternd of node 0 takes no recipes of sends: install this version there");
  rank.submit(plan::kSend, 0, 8);
  EXPECT_FALSE(rank.client.next_completion().has_value()) << "it takes what loses nothing";
}

}  // namespace
}  // namespace tern::daemon::point_to_point_test
