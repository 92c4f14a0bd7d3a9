#include "daemon/lane/raw_prefix.h"

#include <gtest/gtest.h>

#include <vector>

namespace tern::daemon {
namespace raw_prefix_test {

TEST(RawPrefix, AndTheElementsAreABlock) {
  const std::vector<float> values = {1.5f, -2.0f, 3.25f};
  collective::Op op;
  op.announced_first.dtype = static_cast<std::uint8_t>(DType::f32);
  op.key.sequence = 9;
  RawPrefix prefix;
  const auto bytes = prefix.write(op, 3, false);
  wire::BlockHeader header;
  ASSERT_EQ(wire::parse_block_header(bytes, header), wire::BlockError::none);
  EXPECT_EQ(header.stream_step, 9u);
  std::vector<float> decoded(3);
  codec::Workspace workspace;
  EXPECT_EQ(codec::decode({header, std::as_bytes(std::span(values))}, decoded, workspace),
            codec::DecodeStatus::ok);
  EXPECT_EQ(decoded, values);
}

TEST(RawPrefix, SaysThatValuesWereNotFinite) {
  collective::Op op;
  op.announced_first.dtype = static_cast<std::uint8_t>(DType::f32);
  RawPrefix finite, other;
  const auto plain = finite.write(op, 3, false);
  const auto marked = other.write(op, 3, true);
  EXPECT_FALSE(std::equal(plain.begin(), plain.end(), marked.begin()));
}

}  // namespace raw_prefix_test
}  // namespace tern::daemon
