// What is copied and what is registered, as the device's side counts it, and whose check sums.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fd.h"
#include "shm/absent_pages.h"
#include "shm/segment.h"
#include "tests/rdma/two_ends.h"

namespace tern::rdma {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBody = 256 << 10;
constexpr std::size_t kMiB = 1 << 20;

std::vector<std::byte> frame_of(std::size_t bytes) {
  return net::sealed(net::block_header(1), net::pattern(bytes, 1));
}

TEST(Memory, ThatIsKnownIsSentWithoutACopy) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  const auto frame = frame_of(kBody);
  ASSERT_TRUE(ends.remember(frame));
  const std::uint64_t before = ends.transport_a.data_path_counters().copied_bytes;
  ASSERT_TRUE(ends.carry(frame));
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - before, wire::kFrameHeaderBytes);
  EXPECT_EQ(ends.sink_b.payloads.back(), net::pattern(kBody, 1));
  ends.forget(frame);
  ASSERT_TRUE(ends.carry(frame));
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - before,
            2 * wire::kFrameHeaderBytes + kBody);
}

TEST(Memory, IsRegisteredOnceAndNotBeforeItIsUsed) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  const auto frame = frame_of(kBody);
  ASSERT_TRUE(ends.remember(frame));
  const std::uint64_t before = fabric.registrations;
  const std::uint64_t bytes_before = fabric.registered_bytes;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.carry(frame));
  EXPECT_EQ(fabric.registrations - before, 1u);
  EXPECT_EQ(fabric.registered_bytes - bytes_before, frame.size());
  ends.forget(frame);
  EXPECT_EQ(fabric.registered_bytes, bytes_before);
}

// An arena is pinned where frames leave from, and frames across two pieces are not copied.
TEST(Memory, OfAnArenaIsRegisteredPieceByPiece) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  std::vector<std::byte> arena(200 * kMiB);
  ASSERT_TRUE(ends.remember(arena));
  const auto frame = frame_of(kBody);
  const std::uint64_t before = fabric.registered_bytes;
  std::uint64_t copied = ends.transport_a.data_path_counters().copied_bytes;
  for (const std::size_t at : {64 * kMiB - kBody / 2, 64 * kMiB - kBody / 2 + 4096}) {
    std::copy(frame.begin(), frame.end(), arena.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_TRUE(ends.carry(std::span(arena).subspan(at, frame.size())));
  }
  EXPECT_EQ(fabric.registered_bytes - before, 65 * kMiB);
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - copied,
            2 * wire::kFrameHeaderBytes);
  // The end of the arena, which is no whole piece.
  copied = ends.transport_a.data_path_counters().copied_bytes;
  const std::size_t last = arena.size() - frame.size();
  std::copy(frame.begin(), frame.end(), arena.begin() + static_cast<std::ptrdiff_t>(last));
  ASSERT_TRUE(ends.carry(std::span(arena).subspan(last)));
  EXPECT_EQ(fabric.registered_bytes - before, 65 * kMiB + 8 * kMiB);
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - copied, wire::kFrameHeaderBytes);
  ends.forget(arena);
  while (ends.step() > 0) {
  }
  EXPECT_EQ(fabric.registered_bytes, before);
}

// A lane stands still while a device takes memory or lets it go.
TEST(Memory, IsTakenAndLetGoAboutOnePieceInATurn) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  std::vector<std::byte> arena(192 * kMiB);
  ASSERT_TRUE(ends.remember(arena));
  const auto frame = frame_of(kBody);
  const std::uint64_t before = fabric.registered_bytes;
  std::uint64_t last = before, most = 0;
  const auto look = [&] {
    const std::uint64_t now = fabric.registered_bytes;
    most = std::max(most, now > last ? now - last : last - now);
    last = now;
  };
  const std::uint64_t copied = ends.transport_a.data_path_counters().copied_bytes;
  for (std::size_t piece = 0; piece < 3; ++piece) {
    const auto place = std::span(arena).subspan((64 * piece + 2) * kMiB, frame.size());
    std::copy(frame.begin(), frame.end(), place.begin());
    ends.a->send({place.first(wire::kFrameHeaderBytes), place.subspan(wire::kFrameHeaderBytes)});
  }
  ASSERT_TRUE(ends.until([&] {
    look();
    return ends.sink_b.payloads.size() == 3 && ends.a->queued_bytes() == 0;
  }));
  EXPECT_EQ(last - before, 194 * kMiB);
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - copied,
            3 * wire::kFrameHeaderBytes)
      << "what comes later is waited for";
  ends.forget(arena);
  look();
  EXPECT_GT(last, before);
  while (ends.step() > 0) look();
  EXPECT_EQ(last, before);
  EXPECT_EQ(most, 65 * kMiB);
}

// Of a client that has not been given all of its arena.
TEST(Memory, WithAbsentPagesIsRegisteredWhereFramesLeave) {
  if (!shm::can_leave_absent()) GTEST_SKIP() << shm::can_leave_absent().error().text;
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  auto segment = shm::Segment::create_region(8 * kMiB);
  ASSERT_TRUE(segment) << segment.error().text;
  ASSERT_TRUE(segment->leave_absent_pages());
  auto client = shm::Segment::map_region(duplicate(segment->fd()), segment->segment_bytes());
  ASSERT_TRUE(client) << client.error().text;
  const auto frame = frame_of(kBody);
  // Across two of the pieces in which memory is given out, of which the third is absent.
  ASSERT_TRUE(shm::populate(client->arena().first(3 * kBody)));
  const std::size_t at = kBody / 2;
  std::copy(frame.begin(), frame.end(), client->arena().begin() + static_cast<std::ptrdiff_t>(at));

  const auto arena = segment->arena();
  ASSERT_TRUE(ends.remember(arena));
  const std::uint64_t before = fabric.registered_bytes;
  const std::uint64_t copied = ends.transport_a.data_path_counters().copied_bytes;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(ends.carry(arena.subspan(at, frame.size())));
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - copied,
            2 * wire::kFrameHeaderBytes);
  // Of the messages one lies across the border of both.
  EXPECT_LE(fabric.registered_bytes - before, 4 * kBody);
  EXPECT_GT(fabric.registered_bytes - before, 0u);
  EXPECT_EQ(ends.sink_b.payloads.back(), net::pattern(kBody, 1));
  EXPECT_FALSE(segment->has_lost_pages());
  // That another one goes has nothing tried again.
  const auto other = frame_of(kBody);
  ASSERT_TRUE(ends.remember(other));
  ASSERT_TRUE(ends.carry(other));
  ends.forget(other);
  const std::uint64_t attempts = fabric.attempts;
  ASSERT_TRUE(ends.carry(arena.subspan(at, frame.size())));
  EXPECT_EQ(fabric.attempts, attempts);
  ends.forget(arena);
  EXPECT_EQ(fabric.registered_bytes, before);
}

TEST(Memory, BeyondTheLimitIsCopiedAndSaidSo) {
  mock::Fabric fabric;
  const auto small = [](RdmaSettings& settings) { settings.max_registered_bytes = 300 << 10; };
  TwoEnds ends(fabric, small);
  ASSERT_TRUE(ends.connect_until("rdma"));
  const auto first = frame_of(kBody), second = frame_of(kBody);
  ASSERT_TRUE(ends.remember(first));
  ASSERT_TRUE(ends.remember(second));
  ASSERT_TRUE(ends.carry(first));
  EXPECT_STREQ(ends.a->carriage().note, "mock0:1");
  ASSERT_TRUE(ends.carry(second));
  ends.step();
  EXPECT_THAT(ends.a->carriage().note, HasSubstr("frames are copied"));
  EXPECT_THAT(ends.a->carriage().note, HasSubstr("(rdma_max_registered, "));
  // Room is found again.
  ends.forget(first);
  const std::uint64_t copied = ends.transport_a.data_path_counters().copied_bytes;
  ASSERT_TRUE(ends.carry(second));
  ends.step();
  EXPECT_EQ(ends.transport_a.data_path_counters().copied_bytes - copied, wire::kFrameHeaderBytes);
  EXPECT_STREQ(ends.a->carriage().note, "mock0:1");
}

TEST(Memory, ThatTheDeviceRefusesIsCopiedAndSaidSo) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  fabric.max_registered_bytes = fabric.registered_bytes;
  const auto frame = frame_of(kBody);
  ASSERT_TRUE(ends.remember(frame));
  ASSERT_TRUE(ends.carry(frame));
  ends.step();
  EXPECT_EQ(ends.sink_b.payloads.back(), net::pattern(kBody, 1));
  EXPECT_THAT(ends.a->carriage().note, HasSubstr("frames are copied: mock0:1 cannot register"));
}

// Each frame in as few messages as slots allow, small ones inline, one call for a batch.
TEST(Memory, WorkIsGivenToTheDeviceInBatches) {
  mock::Fabric fabric;
  TwoEnds ends(fabric);
  ASSERT_TRUE(ends.connect_until("rdma"));
  const auto frame = frame_of(kBody);
  ASSERT_TRUE(ends.remember(frame));
  const mock::Calls before = fabric.calls;
  ASSERT_TRUE(ends.carry(frame));
  EXPECT_EQ(fabric.calls.sends - before.sends, 4u);
  EXPECT_EQ(fabric.calls.post_send - before.post_send, 1u);
  EXPECT_EQ(fabric.calls.signalled - before.signalled, 1u) << "only the last of a batch";
  EXPECT_EQ(fabric.calls.inlined - before.inlined, 0u);
  const auto small = frame_of(100);
  ASSERT_TRUE(ends.carry(small));
  EXPECT_EQ(fabric.calls.inlined - before.inlined, 1u);
}

struct CrcCase {
  bool a_checks, b_checks, is_checked;
};
class PayloadCrc : public ::testing::TestWithParam<CrcCase> {};

// Left out where both ends say so, and only then.
TEST_P(PayloadCrc, IsCheckedUnlessBothEndsLeaveItOut) {
  mock::Fabric fabric;
  TwoEnds ends(
      fabric, [](RdmaSettings& settings) { settings.payload_crc = GetParam().a_checks; },
      [](RdmaSettings& settings) { settings.payload_crc = GetParam().b_checks; });
  ASSERT_TRUE(ends.connect_until("rdma"));
  EXPECT_EQ(ends.a->wants_payload_crc(), GetParam().is_checked);
  EXPECT_EQ(ends.b->wants_payload_crc(), GetParam().is_checked);
  auto frame = frame_of(1000);
  frame.back() ^= std::byte{1};
  ASSERT_TRUE(ends.carry(frame));
  EXPECT_EQ(ends.sink_b.all_valid, !GetParam().is_checked);
}

INSTANTIATE_TEST_SUITE_P(Settings, PayloadCrc,
                         ::testing::Values(CrcCase{true, true, true}, CrcCase{true, false, true},
                                           CrcCase{false, true, true},
                                           CrcCase{false, false, false}),
                         [](const auto& each) {
                           return std::string(each.param.a_checks ? "On" : "Off") +
                                  (each.param.b_checks ? "On" : "Off");
                         });

}  // namespace
}  // namespace tern::rdma
