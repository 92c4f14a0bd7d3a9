#include "net/frame_fifo.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/net/link_pair.h"
#include "wire/crc32c.h"

namespace tern::net {
namespace frame_fifo_test {
namespace {

wire::FrameHeader header_of(const FrameRecord& record) {
  const wire::ParsedFrame parsed = wire::parse_frame_header(record.head);
  EXPECT_EQ(parsed.error, wire::ParseError::none);
  return parsed.header;
}

FrameRecord& push(FrameFifo& fifo, std::span<const std::byte> prefix,
                  std::span<const std::byte> body, bool with_crc = true) {
  FrameRecord& record = fifo.push();
  wire::FrameHeader header = block_header(7);
  fifo.seal(header, {prefix, body}, with_crc);
  return record;
}

TEST(FrameFifo, NumbersFramesFromOneAndCountsTheirBytes) {
  FrameFifo fifo;
  const auto bytes = pattern(100, 1);
  const auto all = std::span<const std::byte>(bytes);
  for (std::uint64_t seq = 1; seq <= 100; ++seq) {
    const FrameRecord& record = push(fifo, all.first(10), all.subspan(10));
    EXPECT_EQ(header_of(record).link_seq, seq);
    EXPECT_EQ(&record, &fifo.at(seq));
  }
  EXPECT_EQ(fifo.size(), 100u);
  EXPECT_EQ(fifo.bytes(), 100u * 100);
  for (int i = 0; i < 60; ++i) fifo.pop();
  EXPECT_EQ(fifo.first(), 61u);
  EXPECT_EQ(fifo.bytes(), 40u * 100);
}

TEST(FrameFifo, CountsWhatItHoldsItself) {
  FrameFifo fifo;
  wire::FrameHeader header;
  const std::vector<std::byte> borrowed(500);
  fifo.push();
  fifo.seal(header, {{}, borrowed}, true);
  EXPECT_EQ(fifo.held_bytes(), sizeof(FrameRecord));
  FrameRecord& record = fifo.push();
  record.copied.resize(300);
  fifo.seal(header, {{}, record.copied}, true);
  EXPECT_EQ(fifo.held_bytes(), 2 * sizeof(FrameRecord) + 300);
  fifo.pop();
  fifo.pop();
  EXPECT_EQ(fifo.held_bytes(), 0u);
}

TEST(FrameFifo, SealsHeaderAndPrefixInOnePieceBesideTheBody) {
  FrameFifo fifo;
  const auto bytes = pattern(500, 1);
  const auto all = std::span<const std::byte>(bytes);
  const FrameRecord& record = push(fifo, all.first(64), all.subspan(64));
  const OutgoingFrame frame = record.outgoing();
  EXPECT_EQ(frame.head.size(), wire::kFrameHeaderBytes + 64);
  EXPECT_EQ(frame.body.data(), bytes.data() + 64);
  EXPECT_TRUE(
      std::equal(all.begin(), all.begin() + 64, frame.head.begin() + wire::kFrameHeaderBytes));
  const wire::FrameHeader header = header_of(record);
  EXPECT_EQ(header.tensor, 7u);
  EXPECT_EQ(header.payload_bytes, 500u);
  EXPECT_EQ(header.payload_crc, wire::crc32c(bytes));
}

TEST(FrameFifo, AddsThePayloadCrcThatWasLeftOut) {
  FrameFifo fifo;
  const auto bytes = pattern(500, 1);
  const auto all = std::span<const std::byte>(bytes);
  FrameRecord& record = push(fifo, all.first(64), all.subspan(64), false);
  EXPECT_FALSE(record.has_crc);
  EXPECT_EQ(header_of(record).payload_crc, 0u);
  record.add_payload_crc();
  EXPECT_TRUE(record.has_crc);
  EXPECT_EQ(header_of(record).payload_crc, wire::crc32c(bytes));
}

TEST(FrameFifo, MayContinueAtAnyFrameItHoldsAndAtTheNext) {
  FrameFifo fifo;
  for (int i = 0; i < 5; ++i) push(fifo, {}, {});
  fifo.pop();
  fifo.pop();
  EXPECT_FALSE(fifo.may_continue_at(2)) << "it has been forgotten";
  EXPECT_TRUE(fifo.may_continue_at(3));
  EXPECT_TRUE(fifo.may_continue_at(6));
  EXPECT_FALSE(fifo.may_continue_at(7)) << "the peer cannot have had a frame that was never sent";
}

TEST(FrameFifo, RecordsKeepTheirPlaceWhileItGrows) {
  FrameFifo fifo;
  FrameRecord& first = push(fifo, {}, {});
  first.cookie = 99;
  for (int i = 0; i < 1000; ++i) push(fifo, {}, {});
  EXPECT_EQ(&fifo.at(1), &first);
  EXPECT_EQ(fifo.front().cookie, 99u);
}

}  // namespace
}  // namespace frame_fifo_test
}  // namespace tern::net
