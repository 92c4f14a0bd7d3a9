// Every kind of operation while something goes wrong: links that delay, lose, double and spoil what
// they carry, a client that dies, a daemon that dies. Whatever succeeds is right, everything ends,
// and nothing is left behind. What moves with a loss has the same bits wherever it succeeds.
// TERN_SIM_SEEDS: how many seeds, times ten.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "every_kind.h"

namespace tern::sim {
namespace {

enum class Bad : std::uint8_t { slow, lossy, corrupt, client_dies, daemon_dies };
constexpr const char* kBadNames[] = {"slow", "lossy", "corrupt", "client dies", "daemon dies"};

net::FaultSettings faults_of(Bad bad) {
  net::FaultSettings faults;
  if (bad == Bad::slow) faults.delay = 300'000;
  if (bad == Bad::lossy) faults.drop = faults.duplicate = faults.reorder = faults.cut = 8'000;
  if (bad == Bad::corrupt) faults.corrupt_header = faults.corrupt_payload = 5'000;
  return faults;
}

class Troubled {
 public:
  Troubled(std::uint64_t seed, Bad bad)
      : random_(seed), bad_(bad), cluster_(nodes(), shape(), seed) {}

  void run() {
    JoinOptions options;
    options.op_timeout_ms = 20'000;
    cluster_.join(options);
    for (int i = 0; i < 6; ++i) ops_.push_back({draw_kind(random_, cluster_.size()), {}});
    const auto gathered = declare("gathered"), spread = declare("spread");
    cluster_.world.set_faults(faults_of(bad_));
    for (Op& op : ops_) op.submitted = submit_kind(cluster_, op.kind, random_());
    lossy_.push_back(submit_lossy(shm::OpKind::all_gather, gathered));
    lossy_.push_back(submit_lossy(shm::OpKind::broadcast, spread));
    cluster_.world.run_for(random_() % 3'000'000);
    if (bad_ == Bad::client_dies) lose_client();
    if (bad_ == Bad::daemon_dies) lose_daemon();
    look();
    for (const Cluster::Pending& pending : lossy_) look_at(pending);
    if (testing::Test::HasFatalFailure()) return;
    cluster_.world.set_faults({});
    end();
  }

 private:
  struct Op {
    KindCase kind;
    std::vector<SubmittedKind> submitted;  // by rank
  };

  std::vector<std::uint32_t> nodes() {
    auto ranks_of_node = draw_nodes(random_);
    if (ranks_of_node.size() == 1) ranks_of_node.push_back(1);
    return ranks_of_node;
  }
  DaemonShape shape() {
    DaemonShape shape;
    shape.lanes = static_cast<std::uint32_t>(random_() % 3 + 1);
    return shape;
  }

  static constexpr std::uint64_t kShare = 3'000;  // more than lossy_min_bytes

  std::vector<Tensor*> declare(const std::string& name) {
    return cluster_.declare({.name = name,
                             .count = kShare * cluster_.size(),
                             .role = Role::delta,
                             .recipe = "3lc:s=1"});
  }
  // In place, of values that 3LC rounds.
  Cluster::Pending submit_lossy(shm::OpKind kind, const std::vector<Tensor*>& tensors) {
    Cluster::Pending pending;
    pending.request = all_reduce(DType::f32, kShare * cluster_.size());
    pending.request.kind = kind;
    for (std::uint32_t rank = 0; rank < cluster_.size(); ++rank) {
      Client& client = *cluster_.ranks[rank];
      const Bytes values = bytes_of(DType::f32, values_of(pending.request.count, rank));
      OpRequest request = pending.request;
      request.output = client.allocate(values.size());
      request.input = request.output;
      if (kind == shm::OpKind::all_gather) request.input += rank * kShare * sizeof(float);
      std::copy(values.begin(), values.end(), client.at(request.output));
      pending.outputs.push_back(request.output);
      pending.tickets.push_back(client.submit(request, tensors[rank]));
    }
    return pending;
  }
  void look_at(const Cluster::Pending& pending) {
    const std::size_t bytes = pending.request.count * sizeof(float);
    const std::byte* first = nullptr;
    for (std::uint32_t rank = 0; rank < pending.tickets.size(); ++rank) {
      if (!lives(rank)) continue;
      Client& client = *cluster_.ranks[rank];
      const std::uint64_t ticket = pending.tickets[rank];
      ASSERT_TRUE(cluster_.world.run_until([&] { return client.done(ticket); }, 200 * kSecond))
          << "rank " << rank << " waits for ever";
      if (client.result(ticket).status != Errc::ok) {
        ASSERT_NE(bad_, Bad::slow) << client.result(ticket).detail;
        continue;
      }
      const std::byte* const output = client.at(pending.outputs[rank]);
      if (first == nullptr) first = output;
      ASSERT_TRUE(std::equal(first, first + bytes, output)) << "rank " << rank << " differs";
    }
  }

  void lose_client() {
    lost_.push_back(static_cast<std::uint32_t>(random_() % cluster_.size()));
    cluster_.world.close(*cluster_.ranks[lost_[0]]);
    cluster_.ranks[lost_[0]] = nullptr;
  }
  void lose_daemon() {
    const std::size_t node = random_() % cluster_.view.ranks_of_node.size();
    const std::size_t daemon = cluster_.ranks[cluster_.view.ranks_of_node[node][0]]->daemon();
    lost_ = cluster_.view.ranks_of_node[node];
    killed_ = true;
    cluster_.world.kill(daemon);
    for (const std::uint32_t rank : lost_) cluster_.ranks[rank] = nullptr;
  }
  bool lives(std::uint32_t rank) const { return cluster_.ranks[rank] != nullptr; }

  void look() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      SCOPED_TRACE(testing::Message() << "op " << i << ": " << words_of(op.kind));
      for (std::uint32_t rank = 0; rank < op.submitted.size(); ++rank) {
        if (!lives(rank)) continue;
        Client& client = *cluster_.ranks[rank];
        const std::uint64_t ticket = op.submitted[rank].ticket;
        ASSERT_TRUE(cluster_.world.run_until([&] { return client.done(ticket); }, 200 * kSecond))
            << "rank " << rank << " waits for ever";
        const OpResult& result = client.result(ticket);
        if (result.status == Errc::ok) {
          ASSERT_EQ(wrong_in(cluster_, op.kind, rank, op.submitted[rank]), "");
        } else {
          ASSERT_NE(bad_, Bad::slow) << result.detail;
          ASSERT_FALSE(result.detail.empty());
        }
      }
    }
  }

  void end() {
    for (Client* client : cluster_.ranks) {
      if (client != nullptr) client->goodbye();
    }
    EXPECT_TRUE(cluster_.world.run_until([this] {
      return std::all_of(cluster_.ranks.begin(), cluster_.ranks.end(),
                         [](const Client* client) { return client == nullptr || client->lost(); });
    }));
    cluster_.world.run_until([this] { return cluster_.world.find_leak().empty(); }, 100 * kSecond);
    if (!killed_) {
      EXPECT_EQ(cluster_.world.find_leak(), "");
    }
  }

  std::mt19937_64 random_;
  Bad bad_;
  Cluster cluster_;
  std::vector<Op> ops_;
  std::vector<Cluster::Pending> lossy_;
  std::vector<std::uint32_t> lost_;
  bool killed_ = false;
};

TEST(EveryKindInTrouble, EndsAndIsRightWhereItSucceeds) {
  const char* const wanted = std::getenv("TERN_SIM_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) / 10 : 60;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto bad = static_cast<Bad>(seed % std::size(kBadNames));
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << ": " << kBadNames[static_cast<std::size_t>(bad)]);
    Troubled(seed, bad).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tern::sim
