#include "group_ops_net.h"

#include <algorithm>

#include "collective/op_plan.h"
#include "plan/plans.h"

namespace tern::collective {

wire::AnnounceBody all_reduce_of(std::uint64_t count, DType dtype, Reduction reduction) {
  wire::AnnounceBody body{};
  body.count = count;
  body.kind = static_cast<std::uint16_t>(shm::OpKind::all_reduce);
  body.dtype = static_cast<std::uint8_t>(dtype);
  body.reduction = static_cast<std::uint8_t>(reduction);
  return body;
}

wire::AnnounceBody broadcast_of(std::uint64_t count, std::uint32_t root) {
  wire::AnnounceBody body = all_reduce_of(count);
  body.kind = static_cast<std::uint16_t>(shm::OpKind::broadcast);
  body.root = root;
  return body;
}

wire::AnnounceBody reduce_of(std::uint64_t count, std::uint32_t root) {
  wire::AnnounceBody body = broadcast_of(count, root);
  body.kind = static_cast<std::uint16_t>(shm::OpKind::reduce);
  return body;
}

wire::AnnounceBody barrier() {
  wire::AnnounceBody body = all_reduce_of(0);
  body.kind = static_cast<std::uint16_t>(shm::OpKind::barrier);
  return body;
}

Action do_next(GroupOps& ops, const Room& room) {
  const Action action = ops.next(room);
  const bool ends = action.kind == ActionKind::none || action.kind == ActionKind::complete;
  if (!ends) ops.done(action);
  return action;
}

GroupOpsNet::GroupOpsNet(NetShape shape, std::uint64_t seed)
    : shape_(std::move(shape)), random_(seed) {
  std::vector<std::vector<std::uint32_t>> ranks;
  for (const std::uint32_t count : shape_.ranks_of_node) {
    ranks.emplace_back();
    first_rank_.push_back(ranks_);
    for (std::uint32_t i = 0; i < count; ++i) {
      node_of_rank_.push_back(static_cast<std::uint32_t>(ranks.size() - 1));
      ranks.back().push_back(ranks_++);
    }
  }
  nodes_.resize(ranks.size());
  pairs_.resize(ranks.size() * ranks.size());
  results_from.resize(ranks.size());
  results_to.resize(ranks.size());
  for (std::uint32_t i = 0; i < ranks.size(); ++i) {
    GroupShape group;
    group.node = i;
    group.chunk_bytes = shape_.chunk_bytes;
    group.contribution_window = shape_.window;
    group.eager_bytes = shape_.eager_bytes;
    group.eager_form = shape_.eager_form;
    group.rooted_form = shape_.rooted_form;
    group.max_ops_in_flight = shape_.max_ops;
    group.active_chunks = shape_.active_chunks;
    group.verify = shape_.verify;
    group.ranks = ranks;
    nodes_[i].ops = std::make_unique<GroupOps>(group);
  }
}

bool GroupOpsNet::submit(std::uint32_t rank, OpKey key, wire::AnnounceBody body,
                         std::int32_t priority) {
  Node& node = nodes_[node_of_rank_[rank]];
  body.rank = rank;
  if (shape_.park) body.flags = wire::kAnnounceOneLane;
  OpId op = kNoSlot;
  const std::uint32_t local_rank = rank - first_rank_[node_of_rank_[rank]];
  const auto result = node.ops->on_submit({local_rank, key, body, priority, now_ns}, op);
  EXPECT_NE(result, GroupOps::SubmitResult::duplicate);
  if (result != GroupOps::SubmitResult::accepted) return false;
  EXPECT_FALSE(submitted_[id_of(rank, key)]);
  submitted_[id_of(rank, key)] = true;
  const bool declines = (shape_.declining >> node_of_rank_[rank] & 1) != 0;
  if (declines && plan::find(body.kind)->may_decline_eager()) node.ops->compress(op, shape_.park);
  return true;
}

Room GroupOpsNet::room(const Node& node) const {
  const Room& all = shape_.room;
  return {all.accumulators - node.used.accumulators, all.receive_slabs - node.used.receive_slabs,
          all.contributions - node.used.contributions, all.results - node.used.results};
}

// Pairs with frames, nodes with something to begin, nodes with something to end: from a random
// place on, the first that can do something.
bool GroupOpsNet::step() {
  const std::size_t node_places = nodes_.size() * (shape_.late ? 2 : 1);
  const std::size_t places = node_places + (hold_frames ? 0 : pairs_.size());
  const std::size_t begin = random_() % places;
  for (std::size_t i = 0; i < places; ++i) {
    const std::size_t place = (begin + i) % places;
    if (place < node_places) {
      const auto node = static_cast<std::uint32_t>(place % nodes_.size());
      if (nodes_[node].dead) continue;
      if (place < nodes_.size() ? take_action(node) : do_one_late(node)) return true;
      continue;
    }
    const std::size_t index = place - node_places;
    auto& pair = pairs_[index];
    if (pair.empty()) continue;
    const Frame frame = pair.front();
    pair.pop_front();
    ++frames_moved;
    deliver(static_cast<std::uint32_t>(index / nodes_.size()),
            static_cast<std::uint32_t>(index % nodes_.size()), frame);
    return true;
  }
  return false;
}

bool GroupOpsNet::take_action(std::uint32_t self) {
  Node& node = nodes_[self];
  const Action action = node.ops->next(room(node));
  if (action.kind == ActionKind::none) return false;
  issue(self, action);
  if (shape_.late) {
    node.under_way.push_back(action);
  } else {
    act(self, action);
  }
  return true;
}

bool GroupOpsNet::do_one_late(std::uint32_t self) {
  Node& node = nodes_[self];
  const std::size_t count = node.under_way.size() + node.deliveries.size();
  if (count == 0) return false;
  const std::size_t which = random_() % count;
  if (which < node.under_way.size()) {
    const Action action = node.under_way[which];
    node.under_way.erase(node.under_way.begin() + static_cast<std::ptrdiff_t>(which));
    act(self, action);
  } else {
    const auto one =
        node.deliveries.begin() + static_cast<std::ptrdiff_t>(which - node.under_way.size());
    const Delivery delivery = *one;
    node.deliveries.erase(one);
    end_delivery(self, delivery);
  }
  return true;
}

void GroupOpsNet::end_delivery(std::uint32_t to, const Delivery& delivery) {
  GroupOps& ops = *nodes_[to].ops;
  if (ops.op(delivery.op).failed()) {
    ops.not_delivered(delivery.op);
  } else {
    ops.delivered(delivery.op, delivery.chunk);
  }
}

void GroupOpsNet::expect_may_be_issued(const Node& node, const Action& action) {
  const auto on_chunk = [](ActionKind kind) {
    return kind == ActionKind::begin || kind == ActionKind::begin_add || kind == ActionKind::add ||
           kind == ActionKind::finish;
  };
  for (const Action& other : node.under_way) {
    if (other.op != action.op) continue;
    ASSERT_NE(action.kind, ActionKind::complete) << "under who carries out an action";
    ASSERT_NE(other.kind, ActionKind::complete) << "of an op that has ended";
    ASSERT_FALSE(on_chunk(action.kind) && on_chunk(other.kind) && other.chunk == action.chunk)
        << "two actions of one chunk";
    ASSERT_FALSE(!on_chunk(action.kind) && other.kind == action.kind && other.node == action.node &&
                 other.index == action.index)
        << "an action is given out twice";
  }
  for (const Delivery& delivery : node.deliveries) {
    ASSERT_FALSE(delivery.op == action.op && action.kind == ActionKind::complete)
        << "under a delivery";
  }
}

// What is true from the moment on when an action comes out: its room is taken.
void GroupOpsNet::issue(std::uint32_t self, const Action& action) {
  Node& node = nodes_[self];
  expect_may_be_issued(node, action);
  const Room free = room(node);
  const bool announced = node.ops->op(action.op).announces_chunks();
  const std::uint32_t others = announced ? 0 : nodes() - 1;
  switch (action.kind) {
    case ActionKind::grant:
      ASSERT_LE(action.count, free.accumulators);
      ASSERT_LE(action.count * others, free.receive_slabs);
      node.used.accumulators += action.count;
      node.used.receive_slabs += action.count * others;
      break;
    case ActionKind::contribute:
      ASSERT_GT(free.contributions, 0u);
      ++node.used.contributions;
      break;
    case ActionKind::finish:
    case ActionKind::finish_parked:
    case ActionKind::publish:
    case ActionKind::send_on: {
      const bool parks = action.kind == ActionKind::finish && shape_.park;
      if (nodes() > 1 && !parks) ++node.used.results;
      break;
    }
    case ActionKind::complete: {
      std::vector<ChunkId> held;
      for (const auto& [chunk, owner] : node.chunk_op) {
        if (owner == action.op) held.push_back(chunk);
      }
      for (const ChunkId chunk : held) release_chunk(node, chunk);
      const Op& op = node.ops->op(action.op);
      ASSERT_TRUE(op.failed() || op.steps_left == 0);
      break;
    }
    default:
      break;
  }
}

void GroupOpsNet::send_all(std::uint32_t from, const Frame& frame) {
  for (std::uint32_t to = 0; to < nodes(); ++to) {
    if (to != from) pairs_[from * nodes() + to].push_back(frame);
  }
}

void GroupOpsNet::send_result(std::uint32_t from, const Op& op, std::uint32_t chunk) {
  Frame frame;
  frame.kind = wire::FrameKind::result;
  frame.key = op.key;
  frame.chunk = chunk;
  Frame* last = nullptr;
  for (std::uint32_t to = 0; to < nodes(); ++to) {
    if (to == from || !op.chunks.sends(from, to, chunk)) continue;
    auto& pair = pairs_[from * nodes() + to];
    pair.push_back(frame);
    last = &pair.back();
    ++results_from[from];
    ++results_to[to];
  }
  if (last != nullptr) {
    last->is_last = true;
  } else if (nodes() > 1) {
    --nodes_[from].used.results;  // it ends with its owner
  }
}

void GroupOpsNet::release_chunk(Node& node, ChunkId chunk) {
  node.used.receive_slabs -= node.slabs[chunk];
  --node.used.accumulators;
  node.slabs.erase(chunk);
  node.sums.erase(chunk);
  node.chunk_op.erase(chunk);
}

void GroupOpsNet::act(std::uint32_t self, const Action& action) {
  Node& node = nodes_[self];
  GroupOps& ops = *node.ops;
  const Op& op = ops.op(action.op);
  Frame frame;
  frame.key = op.key;
  switch (action.kind) {
    case ActionKind::none:
      break;
    case ActionKind::scan:
      ASSERT_TRUE(op.contribution == Contribution::scanned_blocks);
      break;
    case ActionKind::announce: {
      frame.kind = wire::FrameKind::announce;
      frame.body = op.announced_first;
      frame.body.flags &= static_cast<std::uint8_t>(~wire::kAnnounceDeclines);
      if (declines(op, ops.shape())) frame.body.flags |= wire::kAnnounceDeclines;
      for (std::uint32_t to = 0; to < nodes(); ++to) {
        if (to == self) continue;
        frame.body.eager_bytes =
            static_cast<std::uint32_t>(eager_bytes_of(op, self, to, ops.shape()));
        if (op.announces_chunks() && op.chunks.owned(to) != 0) {
          frame.body.flags |= wire::kAnnounceBlock;
          frame.body.eager_bytes = wire::kBlockHeaderBytes + 1;
        } else {
          frame.body.flags &= static_cast<std::uint8_t>(~wire::kAnnounceBlock);
        }
        pairs_[self * nodes() + to].push_back(frame);
      }
      break;
    }
    case ActionKind::grant: {
      for (std::uint32_t i = 0; i < action.count; ++i) {
        const ChunkId chunk = ops.chunk_slot(action.op, action.index + i);
        ASSERT_NE(chunk, kNoSlot);
        ASSERT_FALSE(node.sums.contains(chunk)) << "a slot is granted twice";
        node.sums[chunk] = {};
        node.slabs[chunk] = op.announces_chunks() ? 0 : nodes() - 1;
        node.chunk_op[chunk] = action.op;
      }
      if (op.announces_chunks()) break;
      frame.kind = wire::FrameKind::grant;
      frame.chunk = op.chunks.chunk(self, action.index);
      frame.count = action.count;
      send_all(self, frame);
      break;
    }
    case ActionKind::contribute:
      ++contributions;
      frame.kind = wire::FrameKind::contribution;
      frame.chunk = op.chunks.chunk(action.node, action.index);
      pairs_[self * nodes() + action.node].push_back(frame);
      break;
    case ActionKind::begin:
      ASSERT_TRUE(node.sums.at(action.chunk).empty());
      node.sums[action.chunk].push_back(self);
      break;
    case ActionKind::begin_add:
    case ActionKind::add: {
      if (action.kind == ActionKind::begin_add) {
        ASSERT_TRUE(node.sums.at(action.chunk).empty());
        node.sums[action.chunk].push_back(self);
      }
      auto& sum = node.sums.at(action.chunk);
      ASSERT_EQ(action.node, (self + sum.size()) % nodes()) << "the order of addition is fixed";
      sum.push_back(action.node);
      if (op.announces_chunks()) break;
      --node.slabs[action.chunk];
      --node.used.receive_slabs;
      break;
    }
    case ActionKind::finish:
      ASSERT_EQ(node.sums.at(action.chunk).size(), nodes()) << "a sum is incomplete";
      if (shape_.park) {
        release_chunk(node, action.chunk);
        ops.parked(action);
        return;
      }
      send_result(self, op, ops.chunk_number(action.chunk));
      release_chunk(node, action.chunk);
      break;
    case ActionKind::finish_parked:
      ASSERT_TRUE(shape_.park);
      send_result(self, op, op.chunks.chunk(self, action.index));
      break;
    case ActionKind::publish:
      ASSERT_EQ(self, op.root_node);
      send_result(self, op, op.chunks.chunk(self, action.index));
      break;
    case ActionKind::send_on:
      ASSERT_NE(self, op.root_node);
      send_result(self, op, op.chunks.chunk(self, action.index));
      break;
    case ActionKind::reduce_eager:
      ASSERT_TRUE(op.is_eager());
      break;
    case ActionKind::verify:
      frame.kind = wire::FrameKind::verify;
      send_all(self, frame);
      break;
    case ActionKind::fail_remote:
      frame.kind = wire::FrameKind::op_fail;
      frame.code = op.status;
      frame.about = op.about_rank;
      frame.text = op.text;
      send_all(self, frame);
      break;
    case ActionKind::tell_submitted:
      frame.kind = wire::FrameKind::submitted;
      frame.ranks = op.submitted;
      send_all(self, frame);
      break;
    case ActionKind::complete:
      for (std::uint32_t rank = first_rank_[self]; rank < ranks_ && node_of_rank_[rank] == self;
           ++rank) {
        const RankOp id = id_of(rank, op.key);
        if (!submitted_[id] || outcomes_.contains(id)) continue;
        outcomes_[id] = {op.failed() ? op.status : Errc::ok, op.text, op.about_rank};
      }
      ops.release(action.op);
      return;
  }
  ops.done(action);
}

// The room that a frame with a block takes comes back when its last receiver has it.
void GroupOpsNet::deliver(std::uint32_t from, std::uint32_t to, const Frame& frame) {
  Node& sender = nodes_[from];
  GroupOps& ops = *nodes_[to].ops;
  if (frame.kind == wire::FrameKind::contribution) --sender.used.contributions;
  if (frame.is_last) --sender.used.results;
  if (nodes_[to].dead || ops.ended()) return;
  OpId op = kNoSlot;
  switch (frame.kind) {
    case wire::FrameKind::announce:
      EXPECT_TRUE(ops.on_announce(from, frame.key, frame.body, op));
      break;
    case wire::FrameKind::grant:
      EXPECT_TRUE(ops.on_grant(from, frame.key, frame.chunk, frame.count));
      break;
    case wire::FrameKind::contribution: {
      ChunkId chunk = kNoSlot;
      EXPECT_TRUE(ops.expect_contribution(from, frame.key, frame.chunk, chunk));
      if (chunk != kNoSlot) ops.on_contribution(from, chunk);
      break;
    }
    case wire::FrameKind::result:
      EXPECT_TRUE(ops.expect_result(from, frame.key, frame.chunk, op));
      if (op == kNoSlot) break;
      ops.delivering(from, op);
      if (shape_.late) {
        nodes_[to].deliveries.push_back({from, op, frame.chunk});
      } else {
        end_delivery(to, {from, op, frame.chunk});
      }
      break;
    case wire::FrameKind::op_fail:
      ops.on_op_fail(frame.key, {frame.code, frame.about, frame.text});
      break;
    case wire::FrameKind::verify:
      EXPECT_TRUE(ops.on_verify(from, frame.key, op));
      break;
    case wire::FrameKind::submitted:
      EXPECT_TRUE(ops.on_submitted(from, frame.key, frame.ranks));
      break;
    default:
      FAIL();
  }
}

bool GroupOpsNet::done(std::uint32_t rank, const OpKey& key) const {
  return outcomes_.contains(id_of(rank, key));
}

Outcome GroupOpsNet::outcome(std::uint32_t rank, const OpKey& key) const {
  const auto found = outcomes_.find(id_of(rank, key));
  if (found != outcomes_.end()) return found->second;
  ADD_FAILURE() << "rank " << rank << " was not told of op " << key.tensor << "/" << key.sequence;
  return {Errc::internal, "nothing", kNoRank};
}

void GroupOpsNet::expect_all(const OpKey& key, Errc code) {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const Outcome heard = outcome(rank, key);
    EXPECT_EQ(heard.code, code) << "rank " << rank << ": " << heard.text;
  }
}

void GroupOpsNet::expect_clean() {
  for (std::uint32_t i = 0; i < nodes(); ++i) {
    const Node& node = nodes_[i];
    if (node.dead) continue;
    EXPECT_EQ(node.ops->table().live(), 0u) << "node " << i;
    EXPECT_EQ(node.ops->counts().in_flight, 0u) << "node " << i;
    EXPECT_EQ(node.used.accumulators, 0u) << "node " << i;
    EXPECT_EQ(node.used.receive_slabs, 0u) << "node " << i;
    EXPECT_EQ(node.used.contributions, 0u) << "node " << i;
    EXPECT_EQ(node.used.results, 0u) << "node " << i;
  }
}

void GroupOpsNet::cut(std::uint32_t node) { nodes_[node].dead = true; }

}  // namespace tern::collective
