// Several jobs on the same daemons: each has links of its own, and its share of every lane.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cluster.h"

namespace tern::sim {
namespace {

constexpr std::uint64_t kFloodCount = 400'000;  // of the job that floods: a hundred chunks
constexpr std::uint64_t kEagerCount = 100;      // travels with its announcement
constexpr std::uint32_t kOtherUser = 1001;

// One rank of a job on each of two daemons.
struct Job {
  Client* ranks[2];
  std::string id;

  Job(World& world, const std::string& name, std::uint32_t user)
      : ranks{&world.connect(0, name, 32 << 20, user), &world.connect(1, name, 32 << 20, user)} {}
};

class Sharing : public testing::Test {
 protected:
  Sharing() {
    world.add_daemon(DaemonShape{});
    world.add_daemon(DaemonShape{});
    world.actors = [this] {
      int work = 0;
      for (const auto& client : world.clients()) work += client->ready() ? client->poll() : 0;
      if (look) look();
      return work;
    };
  }

  Job start(const std::string& name, std::uint32_t user = 0) {
    Job job(world, name, user);
    EXPECT_TRUE(world.run_until([&] { return job.ranks[0]->ready() && job.ranks[1]->ready(); }));
    const std::uint64_t mint = job.ranks[0]->mint();
    EXPECT_TRUE(world.run_until([&] { return job.ranks[0]->answered(mint); }));
    job.id = job.ranks[0]->answer<shm::GroupMintedPacket>(mint)->id;
    join(job);
    return job;
  }

  void join(Job& job) {
    const std::uint64_t requests[] = {job.ranks[0]->join(job.id, 0, 2),
                                      job.ranks[1]->join(job.id, 1, 2)};
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(world.run_until([&] { return job.ranks[rank]->answered(requests[rank]); }));
      ASSERT_TRUE(job.ranks[rank]->adopt_join(requests[rank], rank))
          << job.ranks[rank]->status_of(requests[rank]).detail;
    }
  }

  void leave(Job& job) {
    for (Client* client : job.ranks) {
      const std::uint64_t request = client->leave();
      ASSERT_TRUE(world.run_until([&] { return client->answered(request); }));
    }
  }

  // Submits the same op at both ranks, ones from each.
  std::vector<std::uint64_t> submit(Job& job, std::uint64_t count) {
    std::vector<std::uint64_t> tickets;
    for (Client* client : job.ranks) {
      OpRequest request = all_reduce(DType::f32, count);
      request.input = request.output = client->allocate(count * sizeof(float) + 64);
      const Bytes ones = bytes_of(DType::f32, std::vector<float>(count, 1.0f));
      std::copy(ones.begin(), ones.end(), client->at(request.input));
      outputs[client] = request.output;
      tickets.push_back(client->submit(request));
    }
    return tickets;
  }
  bool ended(const Job& job, const std::vector<std::uint64_t>& tickets) {
    return job.ranks[0]->done(tickets[0]) && job.ranks[1]->done(tickets[1]);
  }
  void expect_sums(const Job& job, const std::vector<std::uint64_t>& tickets, std::uint64_t count) {
    const Bytes twos = bytes_of(DType::f32, std::vector<float>(count, 2.0f));
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Client* client = job.ranks[rank];
      EXPECT_EQ(client->result(tickets[rank]).status, Errc::ok)
          << client->result(tickets[rank]).detail;
      EXPECT_TRUE(std::equal(twos.begin(), twos.end(), client->at(outputs[client])));
      client->forget_arena();
    }
  }

  daemon::Lane& lane(std::size_t daemon) { return *world.daemon(daemon).lanes[0]; }
  std::size_t links(std::size_t daemon) {
    world.run_for(2 * kSecond);  // what a lane shows of its links is a little older
    return lane(daemon).peers().size();
  }

  World world{1};
  std::function<void()> look;
  std::map<Client*, std::uint64_t> outputs;
};

TEST_F(Sharing, EveryGroupHasLinksOfItsOwn) {
  Job first = start("first");
  EXPECT_EQ(links(0), 1u);
  Job second = start("second");
  EXPECT_EQ(links(0), 2u);
  EXPECT_EQ(links(1), 2u);
  std::set<std::uint64_t> groups;
  for (const auto& row : lane(0).peers()) groups.insert(row.group);
  EXPECT_EQ(groups.size(), 2u);
  EXPECT_EQ(daemon::group_of_link(*groups.begin()).size(), 8u);
}

TEST_F(Sharing, LinksThatNoEpochUsesAreClosedAndNotLost) {
  Job first = start("first");
  Job second = start("second");
  leave(second);
  EXPECT_EQ(links(0), 2u);  // the next epoch would use it
  world.run_for(12 * kSecond);
  EXPECT_EQ(links(0), 1u);
  EXPECT_EQ(links(1), 1u);
  EXPECT_EQ(world.links_lost(), 0u);
  const auto tickets = submit(first, kEagerCount);
  ASSERT_TRUE(world.run_until([&] { return ended(first, tickets); }));
  expect_sums(first, tickets, kEagerCount);
}

// The moment at which one side closes a link and the other begins to use it again.
TEST_F(Sharing, AnEpochMayBeginWhileItsLinksAreClosed) {
  Job job = start("job");
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    leave(job);
    world.run_for(10 * kSecond + static_cast<std::uint64_t>(i - 20) * 50'000'000);
    join(job);
    const auto tickets = submit(job, kEagerCount);
    ASSERT_TRUE(world.run_until([&] { return ended(job, tickets); }));
    expect_sums(job, tickets, kEagerCount);
  }
}

TEST_F(Sharing, AFloodLeavesHalfToAnActiveJob) {
  Job flood = start("flood");
  Job quiet = start("quiet");
  const auto first = submit(quiet, kEagerCount);
  ASSERT_TRUE(world.run_until([&] { return ended(quiet, first); }));
  expect_sums(quiet, first, kEagerCount);

  std::uint32_t most_sends = 0, most_results = 0;
  look = [&] {
    for (std::size_t daemon = 0; daemon < 2; ++daemon) {
      const collective::Room taken = lane(daemon).memory().taken();
      most_sends = std::max(most_sends, taken.contributions);
      most_results = std::max(most_results, taken.results);
    }
  };
  const auto large = submit(flood, kFloodCount);
  int small_ops = 0;
  while (!ended(flood, large)) {
    const auto small = submit(quiet, kEagerCount);
    ASSERT_TRUE(world.run_until([&] { return ended(quiet, small); }));
    expect_sums(quiet, small, kEagerCount);
    ++small_ops;
  }
  expect_sums(flood, large, kFloodCount);
  EXPECT_GT(small_ops, 3);
  EXPECT_GT(most_sends + most_results, 0u);
  EXPECT_LE(most_sends, DaemonShape{}.send_slabs / 2);
  EXPECT_LE(most_results, DaemonShape{}.result_slabs / 2);
}

TEST_F(Sharing, AJobThatIsAloneMayUseAll) {
  Job flood = start("flood");
  std::uint32_t most = 0;
  look = [&] { most = std::max(most, lane(0).memory().taken().receive_slabs); };
  const auto large = submit(flood, kFloodCount);
  ASSERT_TRUE(world.run_until([&] { return ended(flood, large); }));
  expect_sums(flood, large, kFloodCount);
  EXPECT_EQ(most, DaemonShape{}.receive_slabs);
}

// What another user's rank never submits is no work: the rounds of a lane are for who has some.
TEST_F(Sharing, WhoWaitsTakesNoPartOfARound) {
  Job busy = start("busy");
  const auto rounds_of_one = [&] {
    const std::uint64_t begin = world.rounds;
    const auto large = submit(busy, kFloodCount);
    EXPECT_TRUE(world.run_until([&] { return ended(busy, large); }));
    expect_sums(busy, large, kFloodCount);
    return world.rounds - begin;
  };
  rounds_of_one();  // which opens what later ones use
  const std::uint64_t alone = rounds_of_one();
  Job waiting = start("waiting", kOtherUser);
  OpRequest request = all_reduce(DType::f32, kEagerCount);
  request.input = request.output = waiting.ranks[0]->allocate(kEagerCount * sizeof(float));
  waiting.ranks[0]->submit(request);
  EXPECT_LE(rounds_of_one(), alone + alone / 2) << "alone " << alone;
}

}  // namespace
}  // namespace tern::sim
