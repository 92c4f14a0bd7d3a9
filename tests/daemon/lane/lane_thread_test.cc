// How a lane's thread spends its idle time, and where it runs.

#include "daemon/lane/lane_thread.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "net/loopback.h"
#include "shm/wakeup.h"

namespace tern::daemon {
namespace {

// Stands still, so that what may spin spins for ever, and counts the looks at it.
class StillClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override {
    looks_.fetch_add(1, std::memory_order_relaxed);
    return 1'000'000'000;
  }
  std::uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<std::uint64_t> looks_{0};
};

// A test that would wait for ever ends by its time limit.
template <typename Condition>
void await(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

using Cores = std::vector<int>;

Cores cores_of(pid_t thread) {
  cpu_set_t set;
  Cores cores;
  if (::sched_getaffinity(thread, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void run_on(const Cores& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
}

pid_t thread_named(const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string comm;
    if (std::getline(file, comm) && comm == name) return std::stoi(entry.path().filename());
  }
  return 0;
}

std::size_t open_schedstats() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const auto file = std::filesystem::read_symlink(entry.path(), closed);
    count += file.filename() == "schedstat" ? 1 : 0;
  }
  return count;
}

class LaneThreadTest : public ::testing::Test {
 protected:
  void start(const LaneThread::Idle& idle, std::uint32_t number = 0) {
    LaneSettings settings;
    settings.lane = number;
    settings.chunk_bytes = 4096;
    lane = std::make_unique<Lane>(settings, LaneClients::Surroundings{clock, transport, &loop},
                                  wire::NodeId{1, 2});
    thread = std::make_unique<LaneThread>(loop, *lane, clock, idle);
    thread->start();
  }
  void several_rounds() {
    const std::uint64_t before = clock.looks();
    await([&] { return clock.looks() > before + 1000; });
  }
  std::uint64_t sleeps() const { return lane->counters().sleeps.load(); }
  // The cores on which lane `number` runs that is pinned.
  Cores pinned(std::uint32_t number) {
    LaneThread::Idle idle;
    idle.pin = true;
    start(idle, number);
    Cores cores = cores_of(thread_named("tern-lane" + std::to_string(number)));
    thread.reset();
    lane.reset();
    return cores;
  }

  StillClock clock;
  net::LoopbackNetwork network;
  net::LoopbackTransport transport{network, {"here", 1}};
  net::EventLoop loop;
  ClientMemory memory;  // outlives the lane
  std::unique_ptr<Lane> lane;
  std::unique_ptr<LaneThread> thread;
};

TEST_F(LaneThreadTest, SpinsOnlyWhileLanesAndClientsHaveCoresOfTheirOwn) {
  LaneThread::Idle idle;
  idle.spin_ns = 1;
  idle.cores = 2;
  idle.lanes = 1;
  start(idle);
  several_rounds();
  EXPECT_EQ(sleeps(), 0u);

  auto segment = shm::Segment::create(1, 4096, 0);
  ASSERT_TRUE(segment) << segment.error().text;
  memory.id = 7;
  memory.segment = std::move(*segment);
  memory.eventfds.push_back(std::move(*shm::make_eventfd()));
  memory.watched.push_back(duplicate(memory.eventfds.back().get()));
  ASSERT_TRUE(lane->commands().push(command::AddClient{&memory}));
  await([&] { return sleeps() > 0; });  // with the client there are as many as cores
}

TEST_F(LaneThreadTest, NeverSpinsWhereThereIsOneCore) {
  LaneThread::Idle idle;
  idle.spin_ns = 1;
  idle.cores = 1;
  idle.lanes = 1;
  start(idle);
  await([&] { return sleeps() > 0; });
}

// A daemon that is ready holds what it will hold without clients.
TEST_F(LaneThreadTest, HasItsDescriptorsOnceItIsStarted) {
  const std::size_t before = open_schedstats();
  start({});
  const bool kernel_says = std::filesystem::exists("/proc/thread-self/schedstat");
  EXPECT_EQ(open_schedstats(), before + (kernel_says ? 1 : 0));
}

// The number of a lane counts the cores that the process may use, not those of the machine.
TEST_F(LaneThreadTest, PinsToTheCoresThatTheProcessMayUse) {
  const Cores all = cores_of(0);
  run_on({all.back()});
  EXPECT_EQ(pinned(0), Cores{all.back()});
  // There is no second one: the thread stays where the process is.
  EXPECT_EQ(pinned(1), Cores{all.back()});
  run_on(all);
  for (std::uint32_t number = 0; number < all.size() && number < 3; ++number) {
    EXPECT_EQ(pinned(number), Cores{all[number]});
  }
  EXPECT_EQ(cores_of(0), all);
}

}  // namespace
}  // namespace tern::daemon
