// The heap of events, the bytes of a stream, and a line.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "byte_ring.h"
#include "event_heap.h"
#include "line.h"

namespace tern::sim {
namespace {

TEST(EventHeap, TakesTheEarliestAndOfOneTimeTheFirst) {
  EventHeap<int> heap;
  EXPECT_EQ(heap.next_ns(), ~std::uint64_t{0});
  const std::vector<std::pair<std::uint64_t, int>> events{{5, 1}, {3, 2}, {5, 3}, {3, 4}, {4, 5}};
  for (const auto& [at, what] : events) heap.add(at, what);
  EXPECT_EQ(heap.next_ns(), 3u);
  std::vector<int> taken;
  while (!heap.empty()) taken.push_back(heap.take());
  EXPECT_EQ(taken, (std::vector<int>{2, 4, 5, 1, 3}));
}

TEST(ByteRing, KeepsWhatIsUnreadWhileItGrows) {
  ByteRing ring;
  std::vector<std::byte> sent, read;
  std::uint8_t next = 0;
  for (std::size_t round = 1; round < 200; ++round) {
    std::vector<std::byte> bytes(round * 37);
    for (std::byte& byte : bytes) byte = std::byte{next++};
    ring.write(bytes);
    sent.insert(sent.end(), bytes.begin(), bytes.end());
    const std::size_t count = std::min<std::uint64_t>(ring.end() - ring.begin(), round * 31);
    for (const auto part : ring.read(ring.begin(), count)) {
      read.insert(read.end(), part.begin(), part.end());
    }
    ring.drop_to(ring.begin() + count);
  }
  ASSERT_EQ(read.size(), ring.begin());
  sent.resize(read.size());
  EXPECT_TRUE(read == sent);
}

TEST(Line, SendsOnePacketAfterTheOtherAtItsRate) {
  constexpr std::uint64_t kDelayNs = 1000;
  Line line(1'000'000, kDelayNs);
  Packet packet;
  packet.bytes = 1000 - Packet::kHeaderBytes;
  line.push(packet, 5);
  line.push(packet, 6);
  EXPECT_EQ(line.bytes(), 2000u);
  EXPECT_EQ(line.next_ns(), 5 + 1'000'000 + kDelayNs);
  EXPECT_EQ(line.pop().bytes, packet.bytes);
  EXPECT_EQ(line.next_ns(), 5 + 2'000'000 + kDelayNs);
  line.pop();
  line.push(packet, 9'000'000);
  EXPECT_EQ(line.next_ns(), 10'000'000 + kDelayNs);
  EXPECT_EQ(line.longest_bytes(), 2000u);
  EXPECT_EQ(line.sent_bytes(), 3000u);
}

}  // namespace
}  // namespace tern::sim
