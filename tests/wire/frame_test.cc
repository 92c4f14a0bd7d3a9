#include "wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "wire/crc32c.h"

namespace tern::wire {
namespace frame_test {

using Bytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeader sample() {
  FrameHeader header;
  header.kind = static_cast<std::uint8_t>(FrameKind::contribution);
  header.flags = kFlagRawBlock;
  header.link_seq = 7;
  header.ack_seq = 5;
  header.group = 0x1122334455667788;
  header.tensor = 9;
  header.op_seq = 11;
  header.epoch = 2;
  header.chunk = 3;
  header.source_node = 1;
  header.leg = 1;
  header.payload_bytes = 4096;
  header.payload_crc = 0xdeadbeef;
  return header;
}

Bytes sealed(FrameHeader header) {
  seal_frame_header(header);
  Bytes bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

ParseError error_of(const FrameHeader& header) { return parse_frame_header(sealed(header)).error; }

TEST(Frame, ASealedHeaderIsReadBack) {
  const Bytes bytes = sealed(sample());
  const ParsedFrame parsed = parse_frame_header(bytes);
  ASSERT_EQ(parsed.error, ParseError::none);
  EXPECT_EQ(std::memcmp(&parsed.header, bytes.data(), bytes.size()), 0);
}

TEST(Frame, EverySingleBitFlipIsRefused) {
  const Bytes good = sealed(sample());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(parse_frame_header(bad).error, ParseError::none) << "bit " << bit;
  }
}

TEST(Frame, EveryShorterInputIsRefused) {
  const Bytes good = sealed(sample());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(parse_frame_header(std::span(good).first(size)).error, ParseError::too_short);
  }
}

TEST(Frame, NamesWhatIsWrongUnderAGoodCrc) {
  FrameHeader header = sample();
  header.magic ^= 1;
  EXPECT_EQ(error_of(header), ParseError::bad_magic);
  header = sample();
  header.version = kWireProtocol + 1;
  EXPECT_EQ(error_of(header), ParseError::bad_version);
  header.version = 0;
  EXPECT_EQ(error_of(header), ParseError::bad_version);
  header = sample();
  header.flags = 2;
  EXPECT_EQ(error_of(header), ParseError::reserved_not_zero);
  header = sample();
  header.reserved0 = 1;
  EXPECT_EQ(error_of(header), ParseError::reserved_not_zero);
  header = sample();
  header.reserved1 = 1;
  EXPECT_EQ(error_of(header), ParseError::reserved_not_zero);
  header = sample();
  header.reserved2 = 1;
  EXPECT_EQ(error_of(header), ParseError::reserved_not_zero);
  header = sample();
  header.payload_bytes = kMaxPayloadBytes;
  EXPECT_EQ(error_of(header), ParseError::none);
  ++header.payload_bytes;
  EXPECT_EQ(error_of(header), ParseError::too_large);
}

TEST(Frame, AcceptsExactlyTheKnownKinds) {
  const std::set<int> known = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 16, 17,
                               18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
  for (int kind = 0; kind < 256; ++kind) {
    FrameHeader header = sample();
    header.kind = static_cast<std::uint8_t>(kind);
    EXPECT_EQ(error_of(header), known.contains(kind) ? ParseError::none : ParseError::unknown_kind)
        << kind;
  }
}

TEST(Frame, EveryErrorHasItsOwnText) {
  std::set<std::string> texts;
  for (int i = 0; i <= static_cast<int>(ParseError::too_large); ++i) {
    EXPECT_TRUE(texts.insert(parse_error_text(static_cast<ParseError>(i))).second) << i;
  }
}

}  // namespace frame_test
}  // namespace tern::wire
