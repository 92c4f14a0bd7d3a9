// What a daemon at rest keeps of the memory that its ops have touched.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster.h"

namespace tern::sim {
namespace {

std::size_t resident_pages(const daemon::SlabPool& pool) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = pool.count() * pool.slab(0).size();
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(::mincore(pool.slab(0).data(), bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return flags & 1; }));
}

std::size_t resident_pages(daemon::Lane& lane) {
  return resident_pages(lane.memory().accumulators()) +
         resident_pages(lane.memory().receive_slabs()) +
         resident_pages(lane.memory().send_slabs()) + resident_pages(lane.memory().result_slabs());
}

class IdleMemory : public testing::Test {
 protected:
  void reduce_once() {
    const std::uint64_t count = 40'000;
    cluster.reduce(all_reduce(DType::f32, count), inputs_of(DType::f32, count, cluster.size()));
    cluster.forget_arenas();
  }
  daemon::Lane& lane() { return *cluster.world.daemon(0).lanes[0]; }

  Cluster cluster{{1, 1}};
  const std::uint64_t keep_ns = daemon::LaneSettings{}.keep_pages_ns;
};

TEST_F(IdleMemory, SlabsKeepTheirPagesBetweenOpsThatFollowEachOther) {
  cluster.join();
  reduce_once();
  const std::size_t touched = resident_pages(lane());
  EXPECT_GT(touched, 0u);
  cluster.world.run_for(keep_ns / 2);
  EXPECT_EQ(resident_pages(lane()), touched);
  cluster.leave_all();
}

TEST_F(IdleMemory, SlabsGiveTheirPagesBackAfterAWhileWithoutOps) {
  cluster.join();
  reduce_once();
  cluster.world.run_for(2 * keep_ns);
  EXPECT_EQ(resident_pages(lane()), 0u);
  reduce_once();
  EXPECT_GT(resident_pages(lane()), 0u);
  cluster.world.run_for(2 * keep_ns);
  EXPECT_EQ(resident_pages(lane()), 0u);
  cluster.leave_all();
}

// One deadline after the last op: before any op, and once the pages are gone, the lane sleeps as
// long as its links let it.
TEST_F(IdleMemory, NothingWakesALaneWhosePagesAreGone) {
  cluster.join();
  cluster.world.run_for(2 * keep_ns);
  reduce_once();
  cluster.world.run_for(2 * keep_ns);
  // A link's sign of life may be due at this very moment.
  ASSERT_TRUE(cluster.world.run_until(
      [this] { return lane().next_deadline_ns() > cluster.world.clock.now_ns(); }));
  const std::uint64_t sleeps_until = lane().next_deadline_ns();
  cluster.world.run_for(sleeps_until - cluster.world.clock.now_ns());
  EXPECT_EQ(resident_pages(lane()), 0u);
  cluster.leave_all();
}

// An op that waits for a rank holds what it has: no deadline takes its pages away.
TEST_F(IdleMemory, AnOpThatWaitsKeepsThePages) {
  cluster.join();
  reduce_once();
  const std::size_t touched = resident_pages(lane());
  Client& early = *cluster.ranks[0];
  OpRequest request = all_reduce(DType::f32, 40'000);
  request.input = early.allocate(160'000);
  request.output = early.allocate(160'000);
  const std::uint64_t ticket = early.submit(request);
  cluster.world.run_for(2 * keep_ns);
  EXPECT_FALSE(early.done(ticket));
  EXPECT_EQ(resident_pages(lane()), touched);
  early.cancel(ticket);
  EXPECT_TRUE(cluster.world.run_until([&] { return early.done(ticket); }));
}

}  // namespace
}  // namespace tern::sim
