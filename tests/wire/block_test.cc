#include "wire/block.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace tern::wire {
namespace block_test {

using HeaderBytes = std::array<std::byte, kBlockHeaderBytes>;

BlockHeader valid_threelc() {
  BlockHeader header;
  header.codec = 2;
  header.flags = kBlockZeroRun;
  header.elements = 1000;
  header.scale_elements = 4096;
  header.payload_bytes = 4 + 100;
  return header;
}

// The reader's own copy of version 1, with every number written out: a change of block.h alone
// fails.
TEST(BlockHeader, LayoutIsFrozen) {
  BlockHeader header;
  header.codec = 0x01;
  header.version = 0x02;
  header.dtype = 0x03;
  header.flags = 0x04;
  header.elements = 0x08070605;
  header.scale_elements = 0x0c0b0a09;
  header.payload_bytes = 0x100f0e0d;
  header.stream_step = 0x1817161514131211;
  header.stages = {0x19, 0x1a, 0x1b, 0x1c, 0x1e1d, 0x201f};
  HeaderBytes bytes{};
  write_block_header(header, bytes);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(std::to_integer<std::size_t>(bytes[i]), i + 1);
  EXPECT_EQ(kBlockVersion, 1);
  EXPECT_EQ(kMaxBlockElements, 1048576u);
  EXPECT_EQ(static_cast<int>(CodecId::raw), 0);
  EXPECT_EQ(static_cast<int>(CodecId::bf16), 1);
  EXPECT_EQ(static_cast<int>(CodecId::threelc), 2);
  EXPECT_EQ(kBlockPaperLayout, 1);
  EXPECT_EQ(kBlockPadZero, 2);
  EXPECT_EQ(kBlockZeroRun, 4);
  EXPECT_EQ(kBlockAllZero, 8);
  EXPECT_EQ(kBlockNonfiniteRaw, 16);
}

TEST(BlockHeader, RoundTrips) {
  HeaderBytes bytes{};
  write_block_header(valid_threelc(), bytes);
  BlockHeader parsed;
  EXPECT_EQ(parse_block_header(bytes, parsed), BlockError::none);
  EXPECT_EQ(parsed, valid_threelc());
}

TEST(BlockHeader, ShortBytesAreRefused) {
  HeaderBytes bytes{};
  write_block_header(valid_threelc(), bytes);
  BlockHeader parsed;
  for (std::size_t length = 0; length < kBlockHeaderBytes; ++length) {
    EXPECT_EQ(parse_block_header(std::span(bytes).first(length), parsed), BlockError::short_header);
  }
}

template <typename Change>
BlockError error_after(Change change) {
  BlockHeader header = valid_threelc();
  change(header);
  return check_block_header(header);
}

TEST(BlockHeader, EachFieldIsChecked) {
  using H = BlockHeader;
  EXPECT_EQ(error_after([](H& h) { h.version = 0; }), BlockError::bad_version);
  EXPECT_EQ(error_after([](H& h) { h.version = 2; }), BlockError::bad_version);
  EXPECT_EQ(error_after([](H& h) { h.codec = 6; }), BlockError::bad_codec);
  EXPECT_EQ(error_after([](H& h) { h.dtype = 1; }), BlockError::bad_dtype);
  EXPECT_EQ(error_after([](H& h) { h.flags = 0x10; }), BlockError::bad_flags);
  EXPECT_EQ(error_after([](H& h) { h.flags = 0x80; }), BlockError::bad_flags);
  EXPECT_EQ(error_after([](H& h) { h.elements = kMaxBlockElements + 1; }),
            BlockError::bad_elements);
  EXPECT_EQ(error_after([](H& h) { h.elements = 0xffffffff; }), BlockError::bad_elements);
  EXPECT_EQ(error_after([](H& h) { h.scale_elements = 63; }), BlockError::bad_scale_elements);
  EXPECT_EQ(error_after([](H& h) { h.scale_elements = 0xffffffc0; }),
            BlockError::bad_scale_elements);
  EXPECT_EQ(error_after([](H& h) { h.payload_bytes = 205; }), BlockError::bad_payload_bytes);
  EXPECT_EQ(error_after([](H& h) { h.payload_bytes = 204; }), BlockError::none);
  // 200 columns need 15 codes of 14 at least.
  EXPECT_EQ(error_after([](H& h) { h.payload_bytes = 19; }), BlockError::none);
  EXPECT_EQ(error_after([](H& h) { h.payload_bytes = 18; }), BlockError::bad_payload_bytes);
  EXPECT_EQ(error_after([](H& h) { h.payload_bytes = 0xffffffff; }), BlockError::bad_payload_bytes);
  EXPECT_EQ(error_after([](H& h) { h.flags = 0; }), BlockError::bad_payload_bytes);
  EXPECT_EQ(error_after([](H& h) { h.flags |= kBlockAllZero; }), BlockError::bad_payload_bytes);
  EXPECT_EQ(error_after([](H& h) { h.stages.bits = 1; }), BlockError::bad_stages);
}

TEST(BlockHeader, RawPayloadIsElementsTimesTheType) {
  BlockHeader header;
  header.elements = 10;
  for (const auto& [dtype, bytes] : {std::pair{0, 4u},
                                     {1, 8u},
                                     {2, 2u},
                                     {3, 2u},
                                     {4, 8u},
                                     {5, 4u},
                                     {6, 1u},
                                     {7, 1u},
                                     {9, 2u},
                                     {13, 16u},
                                     {16, 8u}}) {
    header.dtype = static_cast<std::uint8_t>(dtype);
    header.payload_bytes = 10 * bytes;
    EXPECT_EQ(check_block_header(header), BlockError::none);
    header.payload_bytes += 1;
    EXPECT_EQ(check_block_header(header), BlockError::bad_payload_bytes);
  }
  header.dtype = 17;
  EXPECT_EQ(check_block_header(header), BlockError::bad_dtype);
  header.dtype = 0;
  header.payload_bytes = 40;
  header.scale_elements = 64;
  EXPECT_EQ(check_block_header(header), BlockError::bad_scale_elements);
}

TEST(BlockHeader, EveryErrorHasAText) {
  for (int i = 0; i <= static_cast<int>(BlockError::bad_stages); ++i) {
    EXPECT_STRNE(block_error_text(static_cast<BlockError>(i)), "unknown");
  }
}

}  // namespace block_test
}  // namespace tern::wire
