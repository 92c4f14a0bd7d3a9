// Random groups, ops, orders, room and failures; nothing may hang, leak, or add in another order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "group_ops_net.h"
#include "tests/environment.h"

namespace tern::collective {
namespace group_ops_random_test {

struct Planned {
  OpKey key;
  wire::AnnounceBody body;
  std::int32_t priority;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

NetShape random_shape(Random& random) {
  NetShape shape;
  const std::uint64_t nodes = 1 + random.below(random.one_in(4) ? 16 : 5);
  for (std::uint64_t i = 0; i < nodes; ++i) {
    shape.ranks_of_node.push_back(1 + static_cast<std::uint32_t>(random.below(3)));
  }
  shape.eager_bytes = random.one_in(2) ? 0 : 64 * random.below(4);
  if (random.one_in(3)) shape.declining = random.below(std::uint64_t{1} << nodes);
  shape.window = static_cast<std::uint32_t>(random.below(4));
  shape.max_ops = 8;
  shape.active_chunks = 1 + static_cast<std::uint32_t>(random.below(6));
  shape.verify = random.one_in(4);
  shape.park = random.one_in(4);
  const auto other_nodes = static_cast<std::uint32_t>(std::max<std::uint64_t>(nodes - 1, 1));
  shape.room = {1 + static_cast<std::uint32_t>(random.below(5)),
                other_nodes * (1 + static_cast<std::uint32_t>(random.below(3))),
                1 + static_cast<std::uint32_t>(random.below(4)),
                1 + static_cast<std::uint32_t>(random.below(4))};
  if (random.one_in(2)) shape.eager_form = EagerForm::chunks;
  if (random.one_in(2)) shape.rooted_form = RootedForm::relayed;
  return shape;
}

std::vector<Planned> random_ops(Random& random, const GroupOpsNet& net) {
  std::vector<Planned> ops;
  std::map<std::uint64_t, std::uint64_t> uses;
  for (std::uint64_t i = 0; i < 24; ++i) {
    const std::uint64_t tensor = random.below(6);  // 0 is anonymous
    const OpKey key{tensor, uses[tensor]++};
    const std::uint64_t count = random.one_in(4) ? random.below(kChunk) : random.below(kChunk * 20);
    const auto root = static_cast<std::uint32_t>(random.below(net.ranks()));
    wire::AnnounceBody body = all_reduce_of(count);
    if (tensor == 0 && random.one_in(2)) {
      const std::uint64_t kind = random.below(3);
      body = kind == 0 ? barrier() : kind == 1 ? broadcast_of(count, root) : reduce_of(count, root);
    }
    ops.push_back({key, body, static_cast<std::int32_t>(random.below(3))});
  }
  return ops;
}

// Blocks of half of max_ops, each shuffled, but uses of one tensor stay in order.
std::vector<Planned> shuffled(Random& random, std::vector<Planned> ops, std::size_t block) {
  for (std::size_t begin = 0; begin < ops.size(); begin += block) {
    const std::size_t end = std::min(begin + block, ops.size());
    for (std::size_t i = begin; i + 1 < end; ++i) {
      const std::size_t j = i + random.below(end - i);
      std::swap(ops[i], ops[j]);
    }
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t j = i + 1; j < end; ++j) {
        if (ops[i].key.tensor == ops[j].key.tensor && ops[i].key.sequence > ops[j].key.sequence) {
          std::swap(ops[i], ops[j]);
        }
      }
    }
  }
  return ops;
}

void run_seed(std::uint64_t seed, bool with_failures, bool late) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  NetShape shape = random_shape(random);
  shape.late = late;
  GroupOpsNet net(shape, seed);
  const auto ops = random_ops(random, net);
  const std::size_t window = shape.max_ops / 2;
  std::vector<std::vector<Planned>> plans;
  std::vector<std::size_t> next(net.ranks(), 0);
  for (std::uint32_t rank = 0; rank < net.ranks(); ++rank)
    plans.push_back(shuffled(random, ops, window));

  std::uint64_t steps = 0;
  bool failed_one = false;
  for (;;) {
    ASSERT_LT(++steps, 500'000u) << "no end";
    bool moved = false;
    const auto rank = static_cast<std::uint32_t>(random.below(net.ranks()));
    for (std::uint32_t i = 0; i < net.ranks() && !moved; ++i) {
      const std::uint32_t one = (rank + i) % net.ranks();
      auto& plan = plans[one];
      if (next[one] == plan.size() || (i == 0 && random.one_in(2))) continue;
      std::size_t in_flight = 0;
      for (std::size_t k = 0; k < next[one]; ++k) in_flight += net.done(one, plan[k].key) ? 0 : 1;
      if (in_flight >= window) continue;
      const Planned& planned = plan[next[one]++];
      ASSERT_TRUE(net.submit(one, planned.key, planned.body, planned.priority));
      moved = true;
    }
    if (with_failures && !failed_one && random.one_in(100)) {
      const auto node = static_cast<std::uint32_t>(random.below(net.nodes()));
      const OpId op = net.ops(node).find(ops[random.below(ops.size())].key);
      if (op != kNoSlot) {
        net.ops(node).fail(op, {Errc::cancelled, 0, "cancelled"});
        failed_one = true;
      }
    }
    const std::uint64_t burst = random.below(8);
    for (std::uint64_t i = 0; i < burst; ++i) moved = net.step() || moved;
    if (moved) continue;
    if (net.step()) continue;
    bool all = true;
    bool can_submit = false;
    for (std::uint32_t one = 0; one < net.ranks(); ++one) {
      std::size_t in_flight = 0;
      for (std::size_t k = 0; k < next[one]; ++k)
        in_flight += net.done(one, plans[one][k].key) ? 0 : 1;
      const bool more = next[one] < plans[one].size();
      all = all && !more && in_flight == 0;
      can_submit = can_submit || (more && in_flight < window);
    }
    ASSERT_TRUE(all || can_submit) << "nothing moves and nobody may submit";
    if (all) break;
  }
  if (!with_failures) {
    for (const Planned& planned : ops) net.expect_all(planned.key, Errc::ok);
  }
  net.expect_clean();
}

std::uint64_t first_seed() { return tests::number_of("TERN_SEED", 1); }
std::uint64_t seed_count() {
  return std::getenv("TERN_SEED") != nullptr ? 1 : TERN_GROUP_OPS_SEEDS;
}

// TERN_SEED=n repeats one seed.
TEST(GroupOpsRandom, EverythingCompletes) {
  for (std::uint64_t i = 0; i < seed_count() && !HasFailure(); ++i)
    run_seed(first_seed() + i, false, false);
}

TEST(GroupOpsRandom, EverythingEndsWhenAnOpIsCancelled) {
  for (std::uint64_t i = 0; i < seed_count() && !HasFailure(); ++i)
    run_seed(first_seed() + i, true, false);
}

TEST(GroupOpsRandom, EverythingCompletesWhenActionsAreDoneLateInAnyOrder) {
  for (std::uint64_t i = 0; i < seed_count() && !HasFailure(); ++i)
    run_seed(first_seed() + i, false, true);
}

TEST(GroupOpsRandom, EverythingEndsWhenAnOpIsCancelledUnderLateActions) {
  for (std::uint64_t i = 0; i < seed_count() && !HasFailure(); ++i)
    run_seed(first_seed() + i, true, true);
}

}  // namespace group_ops_random_test
}  // namespace tern::collective
