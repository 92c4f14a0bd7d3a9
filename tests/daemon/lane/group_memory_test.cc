// What a group costs a lane in memory before its first operation: all that LaneGroup allocates,
// counted by the bytes that are asked for, and the room that it maps without touching it.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "daemon/lane/group_bytes.h"
#include "daemon/lane/lane_group.h"

namespace {

std::uint64_t live_bytes = 0;
constexpr std::size_t kBefore = 64;  // keeps every alignment; holds the size

void* allocate(std::size_t size) {
  const std::size_t whole = (size + kBefore + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, whole));
  if (memory == nullptr) std::abort();
  ::new (memory) std::size_t(size);
  live_bytes += size;
  return memory + kBefore;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  std::byte* const begin = static_cast<std::byte*>(memory) - kBefore;
  live_bytes -= *std::launder(static_cast<std::size_t*>(static_cast<void*>(begin)));
  std::free(begin);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t) { return allocate(size); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace tern::daemon {
namespace {

// As daemons with the default settings agree on it.
GroupSetup setup_of(std::uint32_t nodes, std::uint32_t ranks_of_node) {
  GroupSetup setup;
  setup.size = nodes * ranks_of_node;
  setup.shape.eager_bytes = collective::eager_limit(64 << 10, nodes);
  std::uint32_t rank = 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    setup.shape.ranks.emplace_back();
    for (std::uint32_t i = 0; i < ranks_of_node; ++i) setup.shape.ranks.back().push_back(rank++);
    setup.node_ids.push_back({node, node});
    setup.endpoints.push_back({});
  }
  setup.local_clients.assign(ranks_of_node, 1);
  return setup;
}

std::uint64_t bytes_of(const GroupSetup& setup) {
  const std::uint64_t before = live_bytes;
  const auto group = std::make_unique<LaneGroup>(setup, *EagerRoom::make(setup.shape));
  return live_bytes - before;
}

std::uint64_t bytes_of_group(std::uint32_t nodes, std::uint32_t ranks_of_node) {
  return bytes_of(setup_of(nodes, ranks_of_node));
}

// An op takes a slot, of which there are max_ops_in_flight for each node. What is kept of each node
// is kept of few ops. docs/collectives.md has the figures.
TEST(GroupMemory, IsWhatThePageSays) {
  std::vector<std::uint64_t> bytes;
  for (const std::uint32_t nodes : {8u, 16u, 32u, 64u}) {
    bytes.push_back(bytes_of_group(nodes, 1));
    std::printf("%u nodes: %llu bytes\n", nodes, static_cast<unsigned long long>(bytes.back()));
  }
  // Twice the nodes, at most twice the bytes: nothing grows with the square of the nodes.
  for (std::size_t i = 1; i < bytes.size(); ++i) EXPECT_LE(bytes[i], 2 * bytes[i - 1]);
  EXPECT_LT(bytes[3], std::uint64_t{8'150'000});
}

// The account of a group's user pays for what it takes, and not for much more.
TEST(GroupMemory, IsWhatItsUserIsChargedFor) {
  for (const std::uint32_t nodes : {1u, 2u, 8u, 64u}) {
    for (const std::uint32_t ranks : {1u, 8u, 64u}) {
      if (nodes * ranks > 1024) continue;
      SCOPED_TRACE(testing::Message() << nodes << " nodes of " << ranks << " ranks");
      for (const bool verify : {false, true}) {
        GroupSetup setup = setup_of(nodes, ranks);
        setup.shape.verify = verify;
        const std::uint64_t taken = bytes_of(setup);
        EXPECT_GE(group_bytes(setup.shape), taken) << "verify " << verify;
        EXPECT_LE(group_bytes(setup.shape), 2 * taken) << "verify " << verify;
      }
    }
  }
}

// What is kept of each rank is kept of ops that ranks of this node have submitted.
TEST(GroupMemory, GrowsLittleWithTheRanksOfANode) {
  const std::uint64_t bytes = bytes_of_group(64, 64), of_one_each = bytes_of_group(64, 1);
  std::printf("64 nodes of 64 ranks: %llu bytes\n", static_cast<unsigned long long>(bytes));
  EXPECT_LT(bytes, 2 * of_one_each);
}

TEST(GroupMemory, EndsWithTheGroup) {
  const std::uint64_t before = live_bytes;
  bytes_of_group(64, 2);
  EXPECT_EQ(live_bytes, before);
}

}  // namespace
}  // namespace tern::daemon
