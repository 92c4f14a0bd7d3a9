#include "net/frame_receiver.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "tests/net/link_pair.h"
#include "wire/crc32c.h"

namespace tern::net {
namespace frame_receiver_test {
namespace {

class NoConnection final : public Connection {
 public:
  void send(const OutgoingFrame&) override {}
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t received_bytes() const override { return 0; }
};

// Places each payload in two parts of memory of its own, or nowhere.
class PlacingSink final : public ConnectionSink {
 public:
  void on_open(Connection&) override {}
  bool on_header(Connection&, const wire::FrameHeader& header, PayloadPlace& place) override {
    if (!keeps) return accepts;
    payload.assign(header.payload_bytes, std::byte{0xee});
    const std::size_t split = std::min<std::size_t>(prefix_bytes, payload.size());
    place = {std::span(payload).first(split), std::span(payload).subspan(split)};
    return accepts;
  }
  void on_frame(Connection&, const wire::FrameHeader& header, const PayloadPlace&,
                bool payload_valid) override {
    delivered.push_back({header, keeps ? payload : std::vector<std::byte>(), payload_valid});
  }
  void on_closed(Connection&, Errc, const char*) override {}

  bool accepts = true;
  bool keeps = true;
  std::size_t prefix_bytes = 64;
  std::vector<std::byte> payload;
  std::vector<ReceivedFrame> delivered;
};

class FrameReceiverTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> header_of(std::uint64_t number,
                                          std::span<const std::byte> payload) {
    wire::FrameHeader header = block_header(number);
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_crc = wire::crc32c(payload);
    wire::seal_frame_header(header);
    const auto bytes = std::as_bytes(std::span(&header, 1));
    return {bytes.begin(), bytes.end()};
  }
  ::testing::AssertionResult begin(std::uint64_t number, std::span<const std::byte> payload) {
    const wire::ParseError error = receiver.read_header(header_of(number, payload));
    if (error != wire::ParseError::none) {
      return ::testing::AssertionFailure() << wire::parse_error_text(error);
    }
    return receiver.announce(sink, connection) ? ::testing::AssertionSuccess()
                                               : ::testing::AssertionFailure() << "refused";
  }
  // As a carrier that reads into the place: `count` bytes of `source` from where it has come.
  std::size_t read_into_place(std::span<const std::byte> source) {
    auto left = source;
    for (const auto place : receiver.open_places()) {
      const std::size_t bytes = std::min(place.size(), left.size());
      std::copy_n(left.begin(), bytes, place.begin());
      left = left.subspan(bytes);
    }
    return receiver.take_placed(source.size());
  }

  FrameReceiver receiver;
  PlacingSink sink;
  NoConnection connection;
};

TEST_F(FrameReceiverTest, CopiesAPayloadThatArrivesInPiecesOfAnySize) {
  const auto payload = pattern(1000, 1);
  for (const std::size_t piece : {1u, 7u, 63u, 64u, 65u, 999u, 1000u}) {
    for (const std::size_t prefix : {0u, 1u, 64u, 1000u}) {
      sink.prefix_bytes = prefix;
      sink.delivered.clear();
      ASSERT_TRUE(begin(piece, payload));
      for (std::span<const std::byte> rest = payload; !rest.empty();) {
        EXPECT_EQ(receiver.missing_bytes(), rest.size());
        rest = rest.subspan(receiver.copy_in(rest.first(std::min(piece, rest.size()))));
      }
      ASSERT_EQ(receiver.missing_bytes(), 0u);
      receiver.deliver(sink, connection);
      ASSERT_EQ(sink.delivered.size(), 1u);
      EXPECT_EQ(sink.delivered[0].header.tensor, piece);
      EXPECT_EQ(sink.delivered[0].payload, payload);
      EXPECT_TRUE(sink.delivered[0].payload_valid);
      EXPECT_FALSE(receiver.is_inside());
    }
  }
}

TEST_F(FrameReceiverTest, TakesNoMoreThanThePayload) {
  const auto payload = pattern(100, 1);
  auto bytes = payload;
  bytes.resize(150, std::byte{7});
  ASSERT_TRUE(begin(1, payload));
  EXPECT_EQ(receiver.copy_in(bytes), 100u) << "what follows is the next frame's";
  receiver.deliver(sink, connection);
  EXPECT_EQ(sink.delivered[0].payload, payload);
  EXPECT_TRUE(sink.delivered[0].payload_valid);
}

TEST_F(FrameReceiverTest, AccountsForWhatWasReadIntoThePlace) {
  const auto payload = pattern(300, 1);
  auto bytes = payload;
  bytes.resize(320, std::byte{7});
  ASSERT_TRUE(begin(1, payload));
  // Inside the prefix, across into the body, copied in between, and beyond the end.
  EXPECT_EQ(read_into_place(std::span(bytes).first(10)), 10u);
  EXPECT_EQ(receiver.open_places()[0].size(), 54u);
  EXPECT_EQ(read_into_place(std::span(bytes).subspan(10, 100)), 100u);
  EXPECT_EQ(receiver.open_places()[0].size(), 0u);
  EXPECT_EQ(receiver.copy_in(std::span(bytes).subspan(110, 50)), 50u);
  EXPECT_EQ(read_into_place(std::span(bytes).subspan(160)), 140u);
  EXPECT_EQ(receiver.missing_bytes(), 0u);
  receiver.deliver(sink, connection);
  EXPECT_EQ(sink.delivered[0].payload, payload);
  EXPECT_TRUE(sink.delivered[0].payload_valid);
}

TEST_F(FrameReceiverTest, ComparesTheCrcOfAPayloadThatIsThrownAway) {
  sink.keeps = false;
  const auto payload = pattern(100, 1);
  ASSERT_TRUE(begin(1, payload));
  EXPECT_EQ(receiver.take_placed(100), 0u) << "it has no place that could have been read into";
  EXPECT_EQ(receiver.copy_in(std::span(payload).first(60)), 60u);
  EXPECT_EQ(receiver.copy_in(std::span(payload).subspan(60)), 40u);
  receiver.deliver(sink, connection);
  EXPECT_TRUE(sink.delivered[0].payload_valid);
}

TEST_F(FrameReceiverTest, SaysThatAPayloadIsDamagedWhicheverWayItCame) {
  const auto payload = pattern(100, 1);
  auto damaged = payload;
  damaged[70] ^= std::byte{1};
  ASSERT_TRUE(begin(1, payload));
  receiver.copy_in(damaged);
  receiver.deliver(sink, connection);
  ASSERT_TRUE(begin(2, payload));
  read_into_place(damaged);
  receiver.deliver(sink, connection);
  ASSERT_TRUE(begin(3, payload));
  receiver.copy_in(payload);
  receiver.deliver(sink, connection);
  EXPECT_FALSE(sink.delivered[0].payload_valid);
  EXPECT_FALSE(sink.delivered[1].payload_valid);
  EXPECT_TRUE(sink.delivered[2].payload_valid) << "the CRC begins anew with each frame";
}

TEST_F(FrameReceiverTest, LeavesTheCrcAloneWhereTheCarrierProtectsPayloads) {
  const auto payload = pattern(100, 1);
  auto damaged = payload;
  damaged[70] ^= std::byte{1};
  receiver.check_payload(false);
  ASSERT_TRUE(begin(1, payload));
  receiver.copy_in(damaged);
  receiver.deliver(sink, connection);
  EXPECT_TRUE(sink.delivered[0].payload_valid);
  EXPECT_EQ(sink.delivered[0].payload, damaged);
}

TEST_F(FrameReceiverTest, DeliversFramesWithoutAPayload) {
  ASSERT_TRUE(begin(1, {}));
  EXPECT_EQ(receiver.missing_bytes(), 0u);
  EXPECT_TRUE(receiver.is_inside());
  receiver.deliver(sink, connection);
  EXPECT_TRUE(sink.delivered[0].payload_valid);
}

TEST_F(FrameReceiverTest, RefusesAHeaderThatIsShortOrDamaged) {
  const auto good = header_of(1, {});
  EXPECT_EQ(receiver.read_header(std::span(good).first(good.size() - 1)),
            wire::ParseError::too_short);
  auto damaged = good;
  damaged[40] ^= std::byte{1};
  EXPECT_EQ(receiver.read_header(damaged), wire::ParseError::bad_header_crc);
  damaged = good;
  damaged[0] ^= std::byte{1};
  EXPECT_EQ(receiver.read_header(damaged), wire::ParseError::bad_magic);
  EXPECT_FALSE(receiver.is_inside());
  EXPECT_TRUE(begin(1, {})) << "nothing of the damaged ones is left";
}

TEST_F(FrameReceiverTest, IsNotInsideAFrameThatTheSinkRefused) {
  sink.accepts = false;
  const auto payload = pattern(10, 1);
  EXPECT_FALSE(begin(1, payload));
  EXPECT_FALSE(receiver.is_inside());
  EXPECT_TRUE(sink.delivered.empty());
}

// What a connection that is cut here has abandoned is what is_inside() says, and nothing of it is
// delivered.
TEST_F(FrameReceiverTest, IsInsideAFrameUntilAllOfItHasArrived) {
  const auto payload = pattern(100, 1);
  ASSERT_TRUE(begin(1, payload));
  receiver.copy_in(std::span(payload).first(99));
  EXPECT_TRUE(receiver.is_inside());
  EXPECT_EQ(receiver.missing_bytes(), 1u);
  EXPECT_TRUE(sink.delivered.empty());
  receiver.copy_in(std::span(payload).subspan(99));
  receiver.deliver(sink, connection);
  EXPECT_FALSE(receiver.is_inside());
}

}  // namespace
}  // namespace frame_receiver_test
}  // namespace tern::net
