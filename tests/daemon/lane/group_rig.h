#pragma once

// What a part of a group on one lane needs around it: nodes with a lane's resources, real links
// over loopback, and ranks whose values lie in vectors. Announcements are not sent but said, and
// actions are carried out only when a test asks for them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "daemon/lane/lane_group.h"
#include "daemon/lane/lane_links.h"
#include "net/loopback.h"
#include "plan/plans.h"
#include "tests/daemon/lane/block_values.h"

namespace tern::daemon::group_test {

using collective::Action;
using collective::ActionKind;
using collective::OpId;

inline constexpr std::uint64_t kChunk = 256;  // elements of f32
inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr std::uint64_t kMillisecond = 1'000'000;

// An op as all its ranks submit it. Chunk c belongs to node (c + tensor) % nodes.
struct Spec {
  std::uint64_t tensor = 2;
  std::uint64_t count = kChunk;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  Role role = Role::gradient;
  shm::OpKind kind = shm::OpKind::all_reduce;
  std::uint32_t root = 0;
  std::uint64_t use = 1;
  std::uint8_t flags = 0;  // of the announcement
  std::uint32_t counts_crc = 0;
};

struct Shape {
  std::vector<std::vector<std::uint32_t>> ranks = {{0}, {1}};
  std::uint64_t eager_bytes = 0;
  collective::EagerForm eager_form = collective::EagerForm::elements;
  collective::RootedForm rooted_form = collective::RootedForm::direct;
  std::uint64_t known_features = ~std::uint64_t{0};  // of those that others say hello with
};

inline wire::AnnounceBody announcement(const Spec& spec, std::uint32_t rank) {
  wire::AnnounceBody body{};
  body.count = spec.count;
  body.kind = static_cast<std::uint16_t>(spec.kind);
  body.dtype = static_cast<std::uint8_t>(spec.dtype);
  body.reduction = static_cast<std::uint8_t>(spec.reduction);
  body.role = static_cast<std::uint8_t>(spec.role);
  body.flags = spec.flags;
  body.root = spec.root;
  body.rank = rank;
  body.counts_crc = spec.counts_crc;
  return body;
}

inline LaneSettings small_lane() {
  LaneSettings settings;
  settings.chunk_bytes = kChunk * sizeof(float);
  settings.receive_slabs = settings.send_slabs = 8;
  settings.result_slabs = 4;
  return settings;
}

inline wire::NodeId id_of(std::uint32_t node) { return {node + 1, node + 1}; }
inline net::Endpoint endpoint_of(std::uint32_t node) {
  return {"node" + std::to_string(node), 7000};
}

inline GroupSetup setup_of(const Shape& shape, std::uint32_t self) {
  GroupSetup setup;
  setup.number = 5;
  setup.token = 0x70cae;
  setup.link = 11;
  setup.weight = 3;
  setup.epoch = 9;
  setup.seed = 77;
  setup.size = 0;
  setup.shape.node = self;
  setup.shape.chunk_bytes = small_lane().chunk_bytes;
  setup.shape.eager_bytes = shape.eager_bytes;
  setup.shape.eager_form = shape.eager_form;
  setup.shape.rooted_form = shape.rooted_form;
  setup.shape.max_ops_in_flight = 4;
  setup.shape.active_chunks = 4;
  setup.shape.ranks = shape.ranks;
  for (std::uint32_t node = 0; node < shape.ranks.size(); ++node) {
    setup.node_ids.push_back(id_of(node));
    setup.endpoints.push_back(endpoint_of(node));
    setup.size += static_cast<std::uint32_t>(shape.ranks[node].size());
  }
  setup.local_clients.assign(shape.ranks[self].size(), 0);
  return setup;
}

struct ReceivedFrame {
  std::uint32_t node = 0;
  wire::FrameHeader header;
  std::vector<std::byte> payload;
};

// Moved by hand, or by so much whenever somebody looks at it.
class RigClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_ += at_each_look_ns_; }
  void advance_ns(std::uint64_t delta_ns) noexcept { now_ns_ += delta_ns; }
  void advance_at_each_look_ns(std::uint64_t delta_ns) noexcept { at_each_look_ns_ = delta_ns; }

 private:
  mutable std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t at_each_look_ns_ = 0;
};

struct World {
  RigClock clock;
  net::LoopbackNetwork network;
};

// One node of the group. Its parts know each other as those of a LaneGroup do.
struct Node final : MemoryOwner, BlockSink, FrameSink, net::AcceptorSink {
  Node(World& world, const Shape& shape, std::uint32_t self)
      : transport(world.network, endpoint_of(self)),
        resources(small_lane(), {world.clock, transport}),
        links(resources, transport, id_of(self), *this),
        acceptor(world.network, world.clock, {endpoint_of(self), {}}, *this),
        core(setup_of(shape, self), *this),
        known_features(shape.known_features),
        codec(core.ops(), core.lane_ops(), eager,
              {core.setup().number, core.setup().seed, core.setup().size}),
        path(codec, *this, 16),
        group(core.setup(), {}),
        tuning(core, codec.values(), inputs, group),
        reduce(core, tuning, path, eager),
        verified(core.setup().shape),
        verifier(verified, core.setup().size, core.ops().table().slots()),
        results(core, {tuning, path, reduce, verifier}),
        ledger(core, codec.blocks(), tuning, group) {
    core.attach(resources, links, job);
    reduce.attach();
    codec.blocks().attach(resources.codec, resources.trace, *resources.counters, world.clock);
    path.use(*resources.executor);
  }

  // ---- Ops ----
  // All ranks of this node submit it.
  OpId enter(const Spec& spec, const LaneOp& lane_op = {}) {
    OpId op = collective::kNoSlot;
    const auto& numbers = core.setup().shape.ranks[core.self()];
    for (std::uint32_t rank = 0; rank < numbers.size(); ++rank) {
      EXPECT_EQ(
          core.ops().on_submit(
              {rank, {spec.tensor, spec.use}, announcement(spec, numbers[rank]), 0, core.now_ns()},
              op),
          collective::GroupOps::SubmitResult::accepted);
      if (rank == 0) {
        core.begin(op, lane_op);
        tuning.begin(op, made);
      }
      const std::size_t bytes = spec.count * dtype_bytes(spec.dtype);
      OpRank data;
      plan::Shape shape{.count = spec.count};
      shape.root = spec.root;
      shape.rank = numbers[rank];
      shape.ranks = core.setup().size;
      data.extents = plan::find(static_cast<std::uint16_t>(spec.kind))->extents(shape);
      data.input = memory.emplace_back(bytes).operand();
      data.output = memory.emplace_back(bytes).operand();
      core.join(op, rank, data);
    }
    return op;
  }
  // And it is announced.
  OpId submit(const Spec& spec, const LaneOp& lane_op = {}) {
    const OpId op = enter(spec, lane_op);
    const Action action = core.ops().next({});
    EXPECT_EQ(action.kind, ActionKind::announce);
    core.ops().done(action);
    return op;
  }
  // Another node has announced it.
  void hear(std::uint32_t node, const Spec& spec, std::uint32_t eager_bytes = 0) {
    OpId op = collective::kNoSlot;
    wire::AnnounceBody body = announcement(spec, core.setup().shape.ranks[node][0]);
    body.eager_bytes = eager_bytes;
    EXPECT_TRUE(core.ops().on_announce(node, {spec.tensor, spec.use}, body, op));
  }
  void hear_all(const Spec& spec) {
    for (std::uint32_t node = 0; node < core.nodes(); ++node) {
      if (node != core.self()) hear(node, spec);
    }
  }
  // Here and everywhere.
  OpId begin(const Spec& spec, const LaneOp& lane_op = {}) {
    const OpId op = submit(spec, lane_op);
    hear_all(spec);
    return op;
  }
  const OpRank& rank(OpId op, std::uint32_t index = 0) { return core.lane_ops().ranks(op)[index]; }
  // As if the rank had brought something else.
  template <typename Change>
  void change_rank(OpId op, Change change, std::uint32_t index = 0) {
    OpRank changed = rank(op, index);
    change(changed);
    core.join(op, index, changed);
  }
  // As if the op had begun otherwise.
  template <typename Change>
  void change_op(OpId op, Change change) {
    const auto ranks = core.lane_ops().ranks(op);
    const std::vector<OpRank> same(ranks.begin(), ranks.end());
    LaneOp changed = core.lane_op(op);
    change(changed);
    core.begin(op, changed);
    for (std::uint32_t i = 0; i < same.size(); ++i) core.join(op, i, same[i]);
  }
  template <typename T>
  void give(OpId op, const std::vector<T>& values, std::uint32_t index = 0) {
    const auto input = host_bytes(rank(op, index).input);
    ASSERT_EQ(input.size(), values.size() * sizeof(T));
    std::memcpy(input.data(), values.data(), input.size());
  }
  template <typename T = float>
  std::vector<T> got(OpId op, std::uint32_t index = 0) {
    const auto output = host_bytes(rank(op, index).output);
    std::vector<T> values(output.size() / sizeof(T));
    std::memcpy(values.data(), output.data(), output.size());
    return values;
  }

  // A declared tensor with what its recipe remembers.
  std::unique_ptr<TensorState> declare(const Spec& spec, const std::string& recipe) const {
    auto tensor = std::make_unique<TensorState>();
    tensor->id = spec.tensor;
    tensor->dtype = spec.dtype;
    tensor->role = spec.role;
    tensor->count = spec.count;
    tensor->declared.recipe = recipe_of(recipe);
    EXPECT_TRUE(tensor->codec.allocate(
        tensor->declared.recipe, {spec.count, kChunk, core.nodes(), core.self(), spec.dtype}));
    return tensor;
  }
  static LaneOp by_recipe_of(TensorState& tensor) {
    LaneOp op;
    op.tensor = &tensor;
    op.encoding.recipe = tensor.declared.recipe;
    op.encoding.lossy = codec::is_lossy(tensor.declared.recipe);
    op.encoding.lossless = codec::is_lossless(tensor.declared.recipe);
    return op;
  }

  // ---- Actions ----
  Action next() { return core.ops().next(resources.memory.room()); }
  void carry_out(const Action& action) {
    switch (action.kind) {
      case ActionKind::grant:
        return reduce.grant(action);
      case ActionKind::scan:
        return reduce.scan(action);
      case ActionKind::contribute:
        return reduce.contribute(action);
      case ActionKind::begin:
      case ActionKind::begin_add:
      case ActionKind::add:
        return reduce.add(action);
      case ActionKind::finish:
        return results.finish(action);
      case ActionKind::finish_parked:
        return results.finish_parked(action);
      case ActionKind::publish:
        return results.publish(action);
      case ActionKind::send_on:
        return results.send_on(action);
      case ActionKind::complete:
        reduce.release_all(action.op);
        completed.push_back(action.op);
        return;
      default:
        return core.ops().done(action);
    }
  }
  // The next action, which must be of this kind.
  Action carry_out_next(ActionKind kind) {
    const Action action = next();
    EXPECT_EQ(action.kind, kind);
    if (action.kind == kind) carry_out(action);
    return action;
  }
  int carry_out_all() {
    int done = 0;
    for (Action action = next(); action.kind != ActionKind::none; action = next(), ++done) {
      carry_out(action);
    }
    return done;
  }

  void expect_all_memory_is_free() {
    FrameMemory& all = resources.memory;
    for (SlabPool* pool :
         {&all.accumulators(), &all.receive_slabs(), &all.send_slabs(), &all.result_slabs()}) {
      EXPECT_EQ(pool->free_count(), pool->count());
    }
    EXPECT_EQ(all.frames_in_flight(), 0u);
    EXPECT_EQ(job.held, LaneJob::Held{});
  }
  // Takes all events that have been reported of one type.
  template <typename What>
  std::vector<What> events() {
    std::vector<What> taken;
    for (Event event; resources.reports.ring().pop(event);) {
      if (const auto* const what = std::get_if<What>(&event.what)) taken.push_back(*what);
    }
    return taken;
  }
  std::vector<wire::FrameHeader> frames_of(wire::FrameKind kind) const {
    std::vector<wire::FrameHeader> found;
    for (const ReceivedFrame& frame : frames) {
      if (frame.header.kind == static_cast<std::uint8_t>(kind)) found.push_back(frame.header);
    }
    return found;
  }

  int poll() { return acceptor.poll() + transport.poll() + links.tick(resources.clock.now_ns()); }

  // ---- What the parts ask for ----
  void frame_acked(OpId op) override {
    acked.push_back(op);
    core.unpin(op);
  }
  void on_block(const BlockRequest& request, const BlockCompletion& completion) override {
    switch (request.verb) {
      case BlockVerb::encode:
        return reduce.contributed(request, completion);
      case BlockVerb::begin:
      case BlockVerb::begin_add:
      case BlockVerb::add:
        return reduce.added(request, completion);
      case BlockVerb::finish:
      case BlockVerb::finish_parked:
      case BlockVerb::publish:
        return results.made(request, completion);
      case BlockVerb::deliver:
        return results.delivered(request, completion);
      default:
        return core.ops().done(request.action);
    }
  }
  bool place_frame(LanePeer& peer, const wire::FrameHeader& header,
                   net::PayloadPlace& place) override {
    const std::uint32_t node = core.node_of(peer);
    switch (static_cast<wire::FrameKind>(header.kind)) {
      case wire::FrameKind::contribution:
        return reduce.place_contribution(node, header, place);
      case wire::FrameKind::result:
        return results.place(node, header, place);
      default:
        place.body = std::span(peer.small).first(header.payload_bytes);
        return true;
    }
  }
  bool take_frame(LanePeer& peer, const wire::FrameHeader& header, const ReceivedPayload& payload,
                  bool& known) override {
    known = true;
    const std::uint32_t node = core.node_of(peer);
    ReceivedFrame frame{node, header, {}};
    for (const auto part : {payload.place.prefix, payload.place.body}) {
      frame.payload.insert(frame.payload.end(), part.begin(), part.end());
    }
    frames.push_back(std::move(frame));
    switch (static_cast<wire::FrameKind>(header.kind)) {
      case wire::FrameKind::grant:
        return reduce.accept_grant(node, header);
      case wire::FrameKind::contribution:
        reduce.accept_contribution(node, header);
        return true;
      case wire::FrameKind::result:
        results.accept(node, header, payload.place);
        return true;
      default:
        return true;
    }
  }
  void abandon_frame(LanePeer&) override {}
  void on_link_lost(LanePeer& peer, Errc, const char*, bool) override {
    lost.push_back(core.node_of(peer));
  }
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    wire::HelloBody heard = hello;
    heard.features &= known_features;
    links.adopt({incoming.release(), heard});
  }
  void on_refused(const std::string&, Errc, const char*) override {}

  net::LoopbackTransport transport;
  LaneResources resources;
  LaneLinks links;
  net::LoopbackAcceptor acceptor;
  LaneJob job;
  GroupCore core;
  EagerRoom room = *EagerRoom::make(core.setup().shape);
  EagerInputs eager{core.setup().shape, core.ops().table().slots(), room.announced()};
  std::uint64_t known_features;
  BlockCodec codec;
  BlockPath path;
  LaneGroup group;  // only its address is used: events name it
  collective::WholeInputs inputs;
  OpTuning tuning;
  ClientEncoding made;  // of the next op with slots that is submitted
  ReduceLeg reduce;
  // That checksums are kept of every op, whatever the group does with them.
  struct Verified : collective::GroupShape {
    explicit Verified(const GroupShape& shape) : GroupShape(shape) { verify = true; }
  };
  const Verified verified;
  Verifier verifier;
  ResultLeg results;
  OpLedger ledger;
  std::deque<Memory> memory;  // of ranks
  std::vector<ReceivedFrame> frames;
  std::vector<OpId> acked;          // frame_acked
  std::vector<OpId> completed;      // ops, which are not released
  std::vector<std::uint32_t> lost;  // nodes whose links are
};

// One node, which hears of the others what a test says.
class OneNode : public ::testing::Test {
 protected:
  explicit OneNode(const Shape& shape = {}, std::uint32_t self = 0) : node(world, shape, self) {}

  // What comes of it; REQUIRES: the request needs no room but `block` and `sum`.
  BlockCompletion perform(BlockVerb verb, OpId op, const BlockRequest& rest) {
    BlockRequest request = rest;
    request.verb = verb;
    request.op = op;
    return node.codec.perform(request);
  }

  World world;
  Node node;
};

// All nodes of a group, whose links are open.
class AllNodes : public ::testing::Test {
 protected:
  explicit AllNodes(const Shape& shape = {}) {
    for (std::uint32_t self = 0; self < shape.ranks.size(); ++self) {
      nodes.push_back(std::make_unique<Node>(world, shape, self));
    }
    settle();
  }

  Node& node(std::uint32_t index) { return *nodes[index]; }
  // Until nothing is under way. Acknowledgements may still wait for company.
  void settle() {
    for (int work = 1; work != 0;) {
      work = 0;
      for (auto& one : nodes) work += one->poll();
    }
  }
  // Time enough for acknowledgements.
  void settle_acks() {
    settle();
    world.clock.advance_ns(10 * kMillisecond);
    settle();
  }
  // Every node begins the op.
  std::vector<OpId> begin(const Spec& spec, const LaneOp& lane_op = {}) {
    std::vector<OpId> ops;
    for (auto& one : nodes) ops.push_back(one->begin(spec, lane_op));
    return ops;
  }
  // All actions of all nodes, and their frames.
  void run() {
    for (int work = 1; work != 0;) {
      work = 0;
      for (auto& one : nodes) work += one->carry_out_all();
      settle();
    }
    settle_acks();
  }

  World world;
  std::vector<std::unique_ptr<Node>> nodes;
};

}  // namespace tern::daemon::group_test
