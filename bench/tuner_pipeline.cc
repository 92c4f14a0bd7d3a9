#include "bench/tuner_pipeline.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tern::bench {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Bytes that wait before a link: as many slabs and socket buffers as a lane has, about.
constexpr double kQueueBytes = 4e6;

struct Block {
  double arrival = 0.0;
  const StageCost* cost = nullptr;
  bool result = false;
};

struct Node {
  const NodePlan* plan = nullptr;
  double now = 0.0;                 // of the lane
  std::uint32_t contributions = 0;  // still to send
  std::uint32_t contributed = 0;
  std::uint32_t encoded = 0;   // blocks, for what stalls
  std::uint32_t expected = 0;  // blocks still to come
  std::vector<Block> inbox;    // in order of arrival
  std::size_t read = 0;
  double link_free = 0.0;  // when what was sent so far has left
  std::uint32_t train = 0;
  double train_bytes = 0.0;
  NodeOutcome outcome;

  bool has_block() const { return read < inbox.size(); }
};

class Pipeline {
 public:
  Pipeline(const PipelineSetting& setting, const std::array<NodePlan, 2>& plans)
      : setting_(setting), ns_per_byte_(1e9 / setting.rate) {
    const double count = std::max(1.0, setting.bytes / setting.chunk_bytes);
    const auto chunks = static_cast<std::uint32_t>(count + 0.999);
    chunk_bytes_ = setting.bytes / chunks;
    for (std::size_t i = 0; i < 2; ++i) {
      nodes_[i].plan = &plans[i];
      const std::uint32_t owned = i == 0 ? (chunks + 1) / 2 : chunks / 2;
      nodes_[i].contributions = chunks - owned;
      nodes_[i].expected = chunks;  // contributions to its own, results of the others
      nodes_[i].inbox.reserve(chunks);
    }
  }

  PipelineOutcome run() {
    for (;;) {
      const double first = next_time(nodes_[0]);
      const double second = next_time(nodes_[1]);
      if (first == kNever && second == kNever) break;
      const std::size_t turn = first <= second ? 0 : 1;
      nodes_[turn].now = std::min(first, second);
      step(nodes_[turn], nodes_[1 - turn]);
    }
    PipelineOutcome outcome;
    // Announce and grant come first.
    outcome.ns = std::max(nodes_[0].now, nodes_[1].now) + setting_.round_trip_ns;
    for (std::size_t i = 0; i < 2; ++i) outcome.nodes[i] = nodes_[i].outcome;
    return outcome;
  }

 private:
  double queue_ns() const { return kQueueBytes * ns_per_byte_; }

  // When its lane has something to do; a later block may still come before that.
  double next_time(const Node& node) const {
    double time = kNever;
    if (node.has_block()) time = std::max(node.now, node.inbox[node.read].arrival);
    if (node.contributions > 0) {
      time = std::min(time, std::max(node.now, node.link_free - queue_ns()));
    }
    return time;
  }

  void work(Node& node, double ns, bool coding) const {
    const double taken = ns * setting_.load;
    node.now += taken;
    node.outcome.busy_ns += taken;
    if (coding) node.outcome.codec_ns += taken;
  }

  void encode(Node& node, const StageCost& cost) const {
    work(node, chunk_bytes_ * cost.encode_ns, true);
    ++node.encoded;
    if (cost.stall_every != 0 && node.encoded % cost.stall_every == 0) {
      work(node, cost.stall_ns, true);
    }
  }

  void send(Node& node, Node& other, const StageCost& cost, bool result) const {
    const double bytes = chunk_bytes_ * cost.wire;
    work(node, bytes * setting_.byte_ns + setting_.chunk_ns, false);
    const double wire_ns = bytes * ns_per_byte_;
    const bool follows = node.link_free > node.now;
    node.train = follows ? node.train + 1 : 0;
    node.train_bytes = follows ? node.train_bytes + bytes : 0.0;
    NodeOutcome& outcome = node.outcome;
    if (node.train > outcome.longest_train) {
      outcome.longest_train = node.train;
      outcome.train_bytes = node.train_bytes;
    }
    outcome.lower_bound =
        std::max(outcome.lower_bound, bytes / (wire_ns + setting_.round_trip_ns) * 1e9);
    outcome.wire_bytes += bytes;
    ++outcome.blocks;
    node.link_free = std::max(node.link_free, node.now) + wire_ns;
    other.inbox.push_back({node.link_free + 0.5 * setting_.round_trip_ns, &cost, result});
  }

  void step(Node& node, Node& other) const {
    // What has come goes first: it frees memory, and others may wait for it.
    if (node.has_block() && node.inbox[node.read].arrival <= node.now) {
      const Block block = node.inbox[node.read++];
      const double bytes = chunk_bytes_ * block.cost->wire;
      node.outcome.wire_bytes += bytes;
      ++node.outcome.blocks;
      work(node, bytes * setting_.byte_ns + setting_.chunk_ns, false);
      work(node, chunk_bytes_ * block.cost->decode_ns, true);
      if (block.result) return;
      // The last contribution is there: its own is added, and the sum goes back.
      const StageCost& cost = node.plan->broadcast;
      encode(node, cost);
      send(node, other, cost, true);
      work(node, chunk_bytes_ * cost.decode_ns, true);
      return;
    }
    const bool probe = node.contributed < node.plan->probe_chunks;
    const StageCost& cost = probe ? node.plan->probe : node.plan->reduce;
    --node.contributions;
    ++node.contributed;
    const double before = node.now;
    encode(node, cost);
    if (!probe) {
      node.outcome.contribution_ns += node.now - before;
      node.outcome.contribution_bytes += chunk_bytes_;
    }
    send(node, other, cost, false);
  }

  PipelineSetting setting_;
  double ns_per_byte_;
  double chunk_bytes_ = 0.0;
  std::array<Node, 2> nodes_;
};

}  // namespace

PipelineOutcome run_pipeline(const PipelineSetting& setting, const std::array<NodePlan, 2>& plans) {
  return Pipeline(setting, plans).run();
}

}  // namespace tern::bench
