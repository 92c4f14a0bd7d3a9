#include "daemon/lane/state_move_queue.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <vector>

#include "daemon/lane/lane_group.h"
#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::state_move_queue_test {
namespace {

using lane_test::take_events;
using lane_test::TestClient;

constexpr std::uint64_t kLookNs = 1'000;

// Every look at it takes a microsecond, so what is done between two looks takes time.
class LookingTakesTime final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_ += kLookNs; }
  void advance_ns(std::uint64_t ns) { now_ns_ += ns; }

 private:
  mutable std::uint64_t now_ns_ = 0;
};

// Of a tensor with so many chunks on a node's only lane; each is owned here or there in turn.
struct Moved {
  Moved(LaneGroup& group, std::uint64_t client, std::uint64_t chunks)
      : chunk_count(chunks), move{make(group, client)} {
    command = {&group, move.get()};
  }
  std::unique_ptr<StateMove> make(LaneGroup& group, std::uint64_t client) {
    const std::uint64_t elements = group.setup().shape.chunk_bytes / sizeof(float);
    tensor.id = 100 + client;
    tensor.count = chunk_count * elements;
    EXPECT_TRUE(codec::parse_recipe_quick("ef(3lc:s=1)", tensor.declared.recipe));
    const CodecState::Shape shape{.count = tensor.count, .chunk_elements = elements, .nodes = 2};
    EXPECT_TRUE(tensor.codec.allocate(tensor.declared.recipe, shape));
    const StatePart part(codec::Memory::ef, 1.0f, shape, tensor.id);
    room.resize(part.bytes());
    auto made =
        std::make_unique<StateMove>(StateMove{.part = part, .tensor = &tensor, .room = room});
    made->client = client;
    return made;
  }

  std::uint64_t chunk_count;
  TensorState tensor;
  std::vector<std::byte> room;
  std::unique_ptr<StateMove> move;
  command::MoveState command;
};

class StateMoveQueueTest : public ::testing::Test, protected EntrySink {
 protected:
  StateMoveQueueTest() { clients_.count_in(counters_); }
  void on_entry(LaneClient&, const shm::SubmitEntry&) override {}
  // The clients of the moves that have ended since the last call, and how.
  std::vector<std::pair<std::uint64_t, Errc>> ended() {
    std::vector<std::pair<std::uint64_t, Errc>> all;
    for (const auto& event : take_events<event::StateMoved>(reports_)) {
      all.emplace_back(event.move->client, event.code);
    }
    return all;
  }

  LookingTakesTime clock_;
  net::LoopbackNetwork network_;
  net::LoopbackTransport transport_{network_, lane_test::TwoLanes::kHere};
  EventReports reports_{0};
  LaneCounters counters_;
  LaneClients clients_{0, {clock_, transport_}, reports_};
  LaneGroup group_{lane_test::group_of(2, 7), {}}, other_{lane_test::group_of(2, 8), {}};
  StateMoveQueue queue_{clock_, clients_, reports_};
};

using Ended = std::vector<std::pair<std::uint64_t, Errc>>;

TEST_F(StateMoveQueueTest, EveryMoveHasAChunkInItsTurn) {
  Moved large(group_, 1, 10), small(group_, 2, 2);
  queue_.add(large.command);
  queue_.add(small.command);
  for (int chunk = 0; chunk < 4; ++chunk) {
    EXPECT_EQ(ended(), Ended{}) << chunk;
    EXPECT_EQ(queue_.do_work(0), 1);
  }
  EXPECT_EQ(ended(), (Ended{{2, Errc::ok}}));
  for (int chunk = 2; chunk < 10; ++chunk) {
    EXPECT_EQ(ended(), Ended{}) << chunk;
    EXPECT_EQ(queue_.do_work(0), 1);
  }
  EXPECT_EQ(ended(), (Ended{{1, Errc::ok}}));
  EXPECT_EQ(queue_.do_work(0), 0);
  EXPECT_EQ(queue_.deadline_ns(), 0u);
}

TEST_F(StateMoveQueueTest, AMoveIntoLostPagesIsNoSuccess) {
  TestClient alice{1}, bob{2};
  clients_.add(alice.memory);
  clients_.add(bob.memory);
  Moved lost(group_, 1, 2), other(group_, 2, 2);
  const Fd empty(::memfd_create("empty", MFD_CLOEXEC));
  std::byte* const page = alice.memory.segment.arena().data();
  ASSERT_NE(::mmap(page, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, empty.get(), 0), MAP_FAILED);
  const volatile auto* const bytes = static_cast<volatile unsigned char*>(static_cast<void*>(page));
  EXPECT_EQ(bytes[0], 0);
  queue_.add(lost.command);
  queue_.add(other.command);
  for (int chunk = 0; chunk < 4; ++chunk) queue_.do_work(0);
  EXPECT_EQ(ended(), (Ended{{1, Errc::out_of_memory}, {2, Errc::ok}}));
}

TEST_F(StateMoveQueueTest, BesideBusyGroupsAMoveHasItsShareOfTheTime) {
  Moved move(group_, 1, 10);
  queue_.add(move.command);
  EXPECT_EQ(queue_.do_work(3), 1);  // took a microsecond
  const std::uint64_t due = queue_.deadline_ns();
  EXPECT_EQ(due, 2 * kLookNs + 3 * kLookNs);
  EXPECT_EQ(queue_.do_work(3), 0);
  EXPECT_EQ(queue_.deadline_ns(), due);
  clock_.advance_ns(3 * kLookNs);
  EXPECT_EQ(queue_.do_work(3), 1);
}

TEST_F(StateMoveQueueTest, WaitsForWhatWasSubmittedBefore) {
  TestClient client{5};
  clients_.add(client.memory);
  Moved earlier(group_, 6, 2), move(group_, 5, 1);
  queue_.add(earlier.command);
  EXPECT_EQ(queue_.do_work(0), 1);
  client.submit(1);
  queue_.add(move.command);
  EXPECT_EQ(queue_.do_work(0), 0);
  EXPECT_EQ(queue_.deadline_ns(), 0u) << "a lane that looks again at once would not sleep";
  lane_test::take_all(clients_, *this);
  EXPECT_EQ(queue_.do_work(0), 1);
  EXPECT_EQ(queue_.do_work(0), 1);
  EXPECT_EQ(ended(), (Ended{{6, Errc::ok}, {5, Errc::ok}}));
}

TEST_F(StateMoveQueueTest, WhatGoesEndsItsMoves) {
  Moved first(group_, 1, 10), second(other_, 2, 10);
  queue_.add(first.command);
  queue_.add(second.command);
  queue_.do_work(0);
  queue_.cancel([&](const command::MoveState& one) { return one.group == &group_; });
  EXPECT_EQ(ended(), (Ended{{1, Errc::cancelled}}));
  while (queue_.do_work(0) > 0) {
  }
  EXPECT_EQ(ended(), (Ended{{2, Errc::ok}}));
}

}  // namespace
}  // namespace tern::daemon::state_move_queue_test
