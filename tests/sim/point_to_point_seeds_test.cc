// Random sends and recvs over nodes, ranks and lanes, in a random order, over links that do what
// links do: everything ends, in the order that the tags say, with the bytes that were sent.
// TERN_SIM_SEEDS: how many seeds, times one.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "point_to_point.h"

namespace tern::sim {
namespace {

enum class Bad : std::uint8_t { nothing, slow, lossy, corrupt, daemon_dies };
constexpr const char* kBadNames[] = {"nothing", "slow", "lossy", "corrupt", "daemon dies"};

net::FaultSettings pass_faults(Bad bad) {
  net::FaultSettings faults;
  if (bad == Bad::slow) faults.delay = 300'000;
  if (bad == Bad::lossy) faults.drop = faults.duplicate = faults.reorder = faults.cut = 8'000;
  if (bad == Bad::corrupt) faults.corrupt_header = faults.corrupt_payload = 5'000;
  return faults;
}

class PassRun {
 public:
  PassRun(std::uint64_t seed, Bad bad)
      : random_(seed), bad_(bad), cluster_(draw_nodes(), draw_shape(), seed) {}

  void run() {
    JoinOptions options;
    options.op_timeout_ms = 60'000;
    cluster_.join(options);
    draw();
    // Some ranks have their memory outside the arena.
    for (Client* client : cluster_.ranks) {
      if (random_.one_in(2)) client->copying.seed = random_.below(1 << 20) | 1;
    }
    cluster_.world.set_faults(pass_faults(bad_));
    submit_all();
    if (testing::Test::HasFatalFailure()) return;
    if (bad_ == Bad::daemon_dies) {
      cluster_.world.run_for(random_.below(3'000'000));
      cluster_.world.kill(cluster_.world.daemons() - 1);
    }
    for (const Pass& pass : passes_) {
      ASSERT_TRUE(cluster_.world.run_until([&] { return pass.side.done(); }))
          << "rank " << pass.rank << (pass.sends ? " sends" : " receives") << " tag " << pass.tag;
    }
    look();
    cluster_.world.set_faults({});
    if (bad_ != Bad::daemon_dies) cluster_.leave_all();
  }

 private:
  struct Pass {
    std::uint32_t rank = 0, peer = 0, tag = 0;
    bool sends = false, any = false;
    std::uint64_t count = 0, number = 0;  // of those with one sender, receiver and tag
    Passed side;
  };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  // Tags from here on are received from any source.
  static constexpr std::uint32_t kAnyTags = 100;

  std::vector<std::uint32_t> draw_nodes() {
    std::vector<std::uint32_t> nodes(random_.between(bad_ == Bad::daemon_dies ? 2 : 1, 4));
    for (auto& ranks : nodes) ranks = static_cast<std::uint32_t>(random_.between(1, 3));
    return nodes;
  }

  DaemonShape draw_shape() {
    DaemonShape shape;
    shape.lanes = static_cast<std::uint32_t>(random_.between(1, 3));
    return shape;
  }

  std::uint64_t draw_count() {
    switch (random_.below(4)) {
      case 0:
        return random_.below(3);
      case 1:
        return random_.between(1, 1024);
      case 2:
        return random_.between(1020, 1030);
      default:
        return random_.between(1025, 60'000);
    }
  }

  static std::uint64_t key_of(const Key& key, std::uint64_t number) {
    const auto [source, destination, tag] = key;
    return mix64(std::uint64_t{source} << 40 | std::uint64_t{destination} << 20 | tag) + number;
  }

  void draw() {
    std::map<Key, std::uint64_t> numbers;
    const std::uint32_t size = cluster_.size();
    for (std::uint64_t i = random_.between(5, 60); i > 0; --i) {
      Pass out;
      out.rank = static_cast<std::uint32_t>(random_.below(size));
      out.peer = static_cast<std::uint32_t>(random_.below(size));
      out.tag = static_cast<std::uint32_t>(random_.below(3));
      out.sends = true;
      const bool any = random_.one_in(4);
      if (any) out.tag += kAnyTags;
      out.count = draw_count();
      out.number = numbers[{out.rank, out.peer, out.tag}]++;
      Pass in = out;
      in.sends = false;
      in.any = any;
      std::swap(in.rank, in.peer);
      // A recv may have more room than it needs, and from any source it must.
      in.count = any ? 60'000 : in.count + random_.below(3) * random_.below(2000);
      waiting_[out.rank].push_back(out);
      waiting_[in.rank].push_back(in);
    }
    for (auto& [rank, passes] : waiting_) shuffle_but_for_order(passes);
  }

  // What has one other side and tag stays in its order; the rest is anyhow.
  void shuffle_but_for_order(std::vector<Pass>& passes) {
    std::map<std::tuple<bool, std::uint32_t, std::uint32_t>, std::vector<Pass>> queues;
    std::vector<std::tuple<bool, std::uint32_t, std::uint32_t>> order;
    for (const Pass& pass : passes) {
      order.emplace_back(pass.sends, pass.any ? 0 : pass.peer, pass.tag);
      queues[order.back()].push_back(pass);
    }
    random_.shuffle(order);
    std::map<std::tuple<bool, std::uint32_t, std::uint32_t>, std::size_t> next;
    for (std::size_t i = 0; i < order.size(); ++i) passes[i] = queues[order[i]][next[order[i]]++];
  }

  void submit_all() {
    while (!waiting_.empty()) {
      auto rank = waiting_.begin();
      std::advance(rank, static_cast<std::ptrdiff_t>(random_.below(waiting_.size())));
      Pass pass = rank->second.front();
      rank->second.erase(rank->second.begin());
      const PassSpec spec{pass.any ? shm::kAnySource : pass.peer, pass.tag, pass.count};
      pass.side = pass.sends ? send(cluster_, pass.rank, spec,
                                    key_of({pass.rank, pass.peer, pass.tag}, pass.number))
                             : recv(cluster_, pass.rank, spec);
      passes_.push_back(pass);
      if (rank->second.empty()) waiting_.erase(rank);
      if (random_.one_in(3)) cluster_.world.run_for(random_.below(500'000));
    }
  }

  void look() {
    std::map<std::pair<Key, std::uint64_t>, std::uint64_t> sent;
    for (const Pass& pass : passes_) {
      if (pass.sends) sent[{{pass.rank, pass.peer, pass.tag}, pass.number}] = pass.count;
    }
    std::map<Key, std::uint64_t> from_any;  // as many have come
    for (const Pass& pass : passes_) {
      const OpResult& result = pass.side.result();
      if (result.status != Errc::ok) {
        expect_reason(result);
        if (!pass.sends && pass.any) broken_.insert({pass.rank, pass.tag});
        continue;
      }
      if (pass.sends) continue;
      const Key key{result.source, pass.rank, pass.tag};
      EXPECT_TRUE(pass.any || result.source == pass.peer) << result.source;
      if (pass.any && broken_.contains({pass.rank, pass.tag})) continue;
      const std::uint64_t number = pass.any ? from_any[key]++ : pass.number;
      if (bad_ == Bad::corrupt || bad_ == Bad::daemon_dies) continue;
      const auto count = sent.find({key, number});
      ASSERT_NE(count, sent.end()) << "nobody has sent it";
      EXPECT_EQ(result.elements, count->second);
      ASSERT_EQ(pass.side.client->copying.wrong_in_lists, "") << "rank " << pass.rank;
      const std::byte* const at = pass.side.client->at(pass.side.at);
      const std::uint64_t own = key_of(key, number);
      for (std::uint64_t i = 0; i < result.elements; ++i) ASSERT_EQ(at[i], byte_of(own, i));
      for (std::uint64_t i = result.elements; i <= pass.count; ++i) {
        ASSERT_EQ(at[i], std::byte{0x5a}) << "beyond what came";
      }
    }
  }

  void expect_reason(const OpResult& result) const {
    const bool may_corrupt = bad_ == Bad::corrupt && result.status == Errc::corrupt_data;
    const bool may_lose = bad_ == Bad::daemon_dies &&
                          (result.status == Errc::peer_lost || result.status == Errc::daemon_lost);
    EXPECT_TRUE(may_corrupt || may_lose) << errc_name(result.status) << ": " << result.detail;
  }

  Random random_;
  Bad bad_;
  Cluster cluster_;
  std::map<std::uint32_t, std::vector<Pass>> waiting_;  // by rank, in their order
  std::vector<Pass> passes_;                            // submitted
  std::set<std::pair<std::uint32_t, std::uint32_t>> broken_;
};

class PassSeeds : public testing::TestWithParam<Bad> {};

TEST_P(PassSeeds, EverythingEndsAsItShould) {
  const char* const given = std::getenv("TERN_SIM_SEEDS");
  const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 60;
  const char* const only = std::getenv("TERN_SEED");
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    if (only != nullptr && seed != std::strtoull(only, nullptr, 10)) continue;
    SCOPED_TRACE(testing::Message() << "TERN_SEED=" << seed);
    PassRun(seed, GetParam()).run();
    if (HasFailure()) return;
  }
}

std::string bad_name(const testing::TestParamInfo<Bad>& param) {
  std::string name = kBadNames[static_cast<std::size_t>(param.param)];
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Links, PassSeeds,
                         testing::Values(Bad::nothing, Bad::slow, Bad::lossy, Bad::corrupt,
                                         Bad::daemon_dies),
                         bad_name);

}  // namespace
}  // namespace tern::sim
