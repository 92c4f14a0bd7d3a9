#include "daemon/lane/lane_peer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace tern::daemon {
namespace {

TEST(ResultBuffers, ThereIsOneWhileOneIsUsedAtATime) {
  ResultBuffers buffers(64);
  std::set<std::uint32_t> used;
  for (int i = 0; i < 5; ++i) {
    const std::uint32_t buffer = buffers.take();
    used.insert(buffer);
    buffers.give(buffer);
  }
  EXPECT_EQ(used.size(), 1u);
}

TEST(ResultBuffers, AnOperandStaysWhereItIsWhenMoreAreTaken) {
  ResultBuffers buffers(64);
  const Operand first = buffers.operand(buffers.take());
  std::memset(host_bytes(first).data(), 0x5a, first.bytes);
  for (int i = 0; i < 100; ++i) {
    const auto bytes = host_bytes(buffers.operand(buffers.take()));
    std::memset(bytes.data(), 0, bytes.size());
  }
  for (const std::byte byte : host_bytes(first)) ASSERT_EQ(byte, std::byte{0x5a});
}

}  // namespace
}  // namespace tern::daemon
