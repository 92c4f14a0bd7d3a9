// Carries out what collective::GroupOps asks for.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "codec/accumulate.h"
#include "collective/op_plan.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::Action;
using collective::ActionKind;
using collective::ChunkId;
using collective::OpId;

namespace {

// An op that sends less than this shows nothing of a link.
constexpr std::uint64_t kRateBytes = 64 << 10;

}  // namespace

int LaneGroup::run_actions(int budget) {
  int done = 0;
  while (done < budget) {
    const Action action = ops_.next(lane_->room(*job_, nodes_));
    if (action.kind == ActionKind::none) break;
    carry_out(action);
    ++done;
  }
  return done;
}

void LaneGroup::carry_out(const Action& action) {
  switch (action.kind) {
    case ActionKind::none:
      break;
    case ActionKind::announce:
      announce(action.op);
      ops_.done(action);
      break;
    case ActionKind::grant:
      grant(action);
      ops_.done(action);
      break;
    case ActionKind::contribute:
      contribute(action);
      ops_.done(action);
      break;
    case ActionKind::begin: {
      const Part where = part(action.op, ops_.chunk_number(action.chunk));
      sum_local(action.op, where, begin_sum(action.chunk));
      ops_.done(action);
      break;
    }
    case ActionKind::begin_add:
    case ActionKind::add:
      add(action);
      ops_.done(action);
      break;
    case ActionKind::finish:
      if (finish(action.chunk)) {
        ops_.done(action);
      } else {
        ops_.parked(action);
      }
      break;
    case ActionKind::finish_parked:
      finish_parked(action);
      ops_.done(action);
      break;
    case ActionKind::publish:
      publish(action);
      ops_.done(action);
      break;
    case ActionKind::reduce_eager:
      reduce_eager(action.op);
      ops_.done(action);
      break;
    case ActionKind::verify:
      send_checksums(action.op);
      ops_.done(action);
      break;
    case ActionKind::fail_remote:
      send_failure(action.op);
      ops_.done(action);
      break;
    case ActionKind::tell_submitted:
      tell_submitted(action.op);
      ops_.done(action);
      break;
    case ActionKind::complete:
      complete(action.op);
      break;
  }
}

void LaneGroup::announce(OpId op) {
  wire::AnnounceBody body = ops_.op(op).announced_first;
  body.rank = setup_.shape.ranks[self_][0];
  body.eager_bytes = 0;
  if (TensorState* const tensor = data_[op].tensor; tensor != nullptr) {
    bool& lost = tensor->lanes[setup_.shape.lane].streams_lost;
    body.restart_streams = std::exchange(lost, false) ? 1 : 0;
    if (self_ == kLeader) describe_lead(op, body);
  }
  std::span<const std::byte> eager;
  const std::uint64_t bytes = collective::eager_bytes_of(ops_.op(op), self_);
  if (bytes > 0) {
    const Part all{0, static_cast<std::uint32_t>(body.count)};
    body.eager_bytes = static_cast<std::uint32_t>(bytes);
    if (ops_.op(op).plan->eager == plan::Eager::root_values) {
      const auto& ranks = setup_.shape.ranks[self_];
      const auto root = std::find(ranks.begin(), ranks.end(), body.root) - ranks.begin();
      eager = {rank_of(op, static_cast<std::uint32_t>(root)).input, bytes};
    } else if (single_plain_input(op)) {
      eager = {rank_of(op, 0).input, bytes};
    } else {
      // Kept: this node must add exactly what the others get.
      const std::uint32_t slab = eager_pools_[self_]->take();
      TERN_CHECK(slab != kNone);
      eager_slab(op, self_) = slab;
      write_own_contribution(op, all, eager_pools_[self_]->slab(slab).data());
      eager = eager_pools_[self_]->slab(slab).first(bytes);
    }
    data_[op].bytes_raw += bytes * (nodes_ - 1);
    data_[op].bytes_sent += bytes * (nodes_ - 1);
  }
  const auto header = frame(wire::FrameKind::announce, op, 0, 0);
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->link->state() == net::LinkState::lost) continue;
    peer->link->send_copy(header, std::as_bytes(std::span(&body, 1)), eager);
    lane_->count_block(sizeof(body) + eager.size());
  }
}

void LaneGroup::grant(const Action& action) {
  for (std::uint32_t i = 0; i < action.count; ++i) {
    const ChunkId chunk = ops_.chunk_slot(action.op, action.index + i);
    ChunkData& data = chunks_[chunk];
    data.op = action.op;
    data.begun = false;
    lane_->accumulators().promise();
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      data.slabs[node] = node == self_ ? kNone : lane_->receive_slabs().take();
    }
    ++job_->held.accumulators;
    job_->held.receive_slabs += nodes_ - 1;
  }
  if (data_[action.op].started_ns == 0) data_[action.op].started_ns = lane_->clock().now_ns();
  if (data_[action.op].tuning != nullptr && owns_all(action.op)) {  // and contributes nothing
    const std::uint32_t first = ops_.op(action.op).chunks.chunk(self_, action.index);
    offer_sample(action.op, part(action.op, first), nullptr);
  }
  auto header = frame(wire::FrameKind::grant, action.op,
                      ops_.op(action.op).chunks.chunk(self_, action.index), 1);
  header.count = action.count;
  for (LanePeer* peer : peers_) {
    if (peer != nullptr) lane_->send(*peer, header, {}, {}, 0);
  }
}

void LaneGroup::contribute(const Action& action) {
  const OpId op = action.op;
  OpData& data = data_[op];
  if (data.started_ns == 0) data.started_ns = lane_->clock().now_ns();
  const std::uint32_t number = ops_.op(op).chunks.chunk(action.node, action.index);
  const Part where = part(op, number);
  const auto header = frame(wire::FrameKind::contribution, op, number, 1);
  peers_[action.node]->work.sent_bytes += where.elements * dtype_bytes(dtype(op));
  if (data.tuning != nullptr) offer_sample(op, where, data.tensor->codec.sender(where.begin));
  const codec::Recipe& recipe = recipe_of(op, number, Leg::reduce, action.node);
  if (!data.lossy || !codec::is_lossy(recipe)) {
    if (data.lossy && data.tuning != nullptr && contribute_owed(op, action.node, header, where))
      return;
    return contribute_raw(op, action.node, header, where, recipe, false);
  }
  if (codec::scans_tensor(data.recipe) && !data.scanned) scan_reduce_leg(op);
  const std::uint32_t slab = lane_->send_slabs().take();
  const auto memory = lane_->send_slabs().slab(slab);
  std::uint32_t bytes = 0;
  if (!encode_lossy(op, number, Leg::reduce, recipe, local_f32(op, where), data.state_scale,
                    data.reduce_max, memory, bytes)) {
    lane_->send_slabs().give(slab);
    return contribute_raw(op, action.node, header, where, recipe, true);
  }
  data.bytes_raw += std::uint64_t{where.elements} * dtype_bytes(dtype(op));
  data.bytes_sent += bytes;
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::contribution, 1, nullptr,
                                        collective::kNoSlot, &lane_->send_slabs(), slab);
  lane_->send(*peers_[action.node], header, {}, memory.first(bytes), cookie);
}

std::byte* LaneGroup::begin_sum(ChunkId chunk) {
  ChunkData& data = chunks_[chunk];
  data.begun = true;
  data.accumulator = lane_->accumulators().take_promised();
  return lane_->accumulators().slab(data.accumulator).data();
}

void LaneGroup::add(const Action& action) {
  const Part where = part(action.op, ops_.chunk_number(action.chunk));
  ChunkData& chunk = chunks_[action.chunk];
  const auto slab = lane_->receive_slabs().slab(chunk.slabs[action.node]);
  const bool first = action.kind == ActionKind::begin_add;
  std::byte* const accumulator =
      first ? begin_sum(action.chunk) : lane_->accumulators().slab(chunk.accumulator).data();
  const std::byte* own = nullptr;
  if (first && single_plain_input(action.op)) {
    own = rank_of(action.op, 0).input + where.begin * dtype_bytes(dtype(action.op));
  } else if (first) {
    sum_local(action.op, where, accumulator);
  }
  std::uint64_t decode_ns = 0;
  const char* problem =
      add_block(action.op, ops_.chunk_number(action.chunk), action.node,
                slab.first(chunk.bytes[action.node]), own, accumulator, decode_ns);
  if (problem != nullptr) {
    bump(lane_->mutable_counters().bad_blocks, std::uint64_t{1});
    char text[160];
    std::snprintf(text, sizeof(text), "contribution of node %u to chunk %u: %s", action.node,
                  ops_.chunk_number(action.chunk), problem);
    ops_.fail(action.op, {Errc::corrupt_data, collective::kNoRank, text});
    return;
  }
  give_receive_slab(chunk.slabs[action.node]);
  chunk.slabs[action.node] = kNone;
  peers_[action.node]->link->add_decode_ns(decode_ns);
  peers_[action.node]->work.added_ns += decode_ns;
  peers_[action.node]->work.added_bytes += where.elements * dtype_bytes(dtype(action.op));
}

// False: the sum is parked.
bool LaneGroup::finish(ChunkId chunk) {
  const OpId op = ops_.op_of(chunk);
  OpData& data = data_[op];
  const std::uint32_t number = ops_.chunk_number(chunk);
  const codec::Recipe& recipe = recipe_of(op, number, Leg::broadcast, self_);
  const std::span<float> sum{static_cast<float*>(static_cast<void*>(
                                 lane_->accumulators().slab(chunks_[chunk].accumulator).data())),
                             part(op, number).elements};
  if (data.lossy && codec::is_lossy(recipe)) {
    scale_sum(chunk);
    if (codec::scans_tensor(recipe) && park_sum(chunk)) {
      release_chunk(chunk);
      return false;
    }
    const bool raw = codec::results_are_raw(recipe);
    const bool sent = !raw && !codec::scans_tensor(recipe) &&
                      finish_lossy(op, number, recipe, sum, data.state_scale);
    if (!sent) finish_raw(chunk, recipe, Reduction::sum, !raw);
  } else if (data.lossy && data.tuning != nullptr && data.tuning->owes(number) != 0) {
    scale_sum(chunk);
    finish_raw(chunk, recipe, Reduction::sum, !add_owed(op, number, sum));
  } else {
    finish_raw(chunk, recipe, reduction(op), false);
  }
  release_chunk(chunk);
  return true;
}

void LaneGroup::give_receive_slab(std::uint32_t slab) {
  lane_->receive_slabs().give(slab);
  --job_->held.receive_slabs;
}

void LaneGroup::release_chunk(ChunkId chunk) {
  ChunkData& data = chunks_[chunk];
  data.op = collective::kNoSlot;
  if (!data.begun) {
    lane_->accumulators().withdraw_promise();
    --job_->held.accumulators;
  } else if (data.accumulator != kNone) {
    lane_->accumulators().give(data.accumulator);
    --job_->held.accumulators;
  }
  data.accumulator = kNone;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (data.slabs[node] == kNone) continue;
    Receiving& receiving = peers_[node]->receiving;
    if (receiving.group == this && receiving.receive_slab == data.slabs[node]) {
      receiving.orphaned = true;  // being filled: given back when that ends
    } else {
      give_receive_slab(data.slabs[node]);
    }
    data.slabs[node] = kNone;
  }
}

void LaneGroup::publish(const Action& action) {
  const OpId op = action.op;
  const auto& ranks = setup_.shape.ranks[self_];
  const auto root = static_cast<std::uint32_t>(
      std::find(ranks.begin(), ranks.end(), ops_.op(op).announced_first.root) - ranks.begin());
  const std::uint32_t number = ops_.op(op).chunks.chunk(self_, action.index);
  const Part where = part(op, number);
  const std::size_t element = dtype_bytes(dtype(op));
  const std::span<const std::byte> body{rank_of(op, root).input + where.begin * element,
                                        where.elements * element};
  if (nodes_ > 1 && !send_lossless_result(op, number, data_[op].recipe, body)) {
    auto header = frame(wire::FrameKind::result, op, number, 2);
    header.flags = wire::kFlagRawBlock;
    std::byte prefix[wire::kBlockHeaderBytes];
    wire::write_block_header(
        codec::raw_block_header(dtype(op), where.elements, false, ops_.op(op).key.sequence),
        std::span<std::byte, wire::kBlockHeaderBytes>(prefix));
    data_[op].bytes_raw += body.size() * (nodes_ - 1);
    data_[op].bytes_sent += (body.size() + sizeof(prefix)) * (nodes_ - 1);
    pin(op);
    const auto cookie =
        lane_->make_token(*job_, FrameToken::Leg::result, nodes_ - 1, this, op, nullptr, kNone);
    send_to_all(header, prefix, body, cookie);
  }
  for (std::uint32_t i = 0; i < local_ranks_; ++i) {
    std::byte* output = rank_of(op, i).output + where.begin * element;
    if (output != body.data()) std::memmove(output, body.data(), body.size());
  }
}

void LaneGroup::reduce_eager(OpId op) {
  const auto& body = ops_.op(op).announced_first;
  if (data_[op].tuning != nullptr) {
    settle_choice(op);
    if (data_[op].started_ns == 0) data_[op].started_ns = lane_->clock().now_ns();
    offer_sample(op, {0, static_cast<std::uint32_t>(body.count)},
                 data_[op].tensor->codec.sender(0));
  }
  const std::size_t bytes = body.count * dtype_bytes(dtype(op));
  const auto count = static_cast<std::uint32_t>(body.count);
  const Part all{0, count};
  if (ops_.op(op).plan->eager == plan::Eager::root_values) {
    const std::uint32_t root_node = ops_.op(op).root_node;
    const auto& ranks = setup_.shape.ranks[self_];
    const auto root = std::find(ranks.begin(), ranks.end(), body.root) - ranks.begin();
    const std::byte* source =
        root_node == self_ ? rank_of(op, static_cast<std::uint32_t>(root)).input
        : count > 0        ? eager_pools_[root_node]->slab(eager_slab(op, root_node)).data()
                           : nullptr;
    for (std::uint32_t i = 0; i < local_ranks_ && count > 0; ++i) {
      if (rank_of(op, i).output != source) std::memmove(rank_of(op, i).output, source, bytes);
    }
  } else if (count > 0) {
    // The same order on every node.
    std::byte* sum = lane_->scratch(0).data();
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      const bool own_input = node == self_ && eager_slab(op, self_) == kNone;
      const std::byte* source =
          own_input ? rank_of(op, 0).input : eager_pools_[node]->slab(eager_slab(op, node)).data();
      if (node == 0) {
        codec::accumulate_begin(dtype(op), source, count, 1.0f, sum);
      } else {
        codec::accumulate(dtype(op), reduction(op), source, count, 1.0f, sum);
      }
    }
    codec::accumulate_finish(dtype(op), reduction(op), sum, count, setup_.size,
                             rank_of(op, 0).output);
    copy_to_other_ranks(op, all);
  }
}

// ---- The end of an op ---------------------------------------------------------------------------

void LaneGroup::send_failure(OpId op) {
  const auto& failed = ops_.op(op);
  wire::OpFailBody body{};
  body.code = static_cast<std::int32_t>(failed.status);
  body.rank = failed.about_rank;
  std::memcpy(body.text, failed.text, std::min(sizeof(body.text), sizeof(failed.text)));
  const auto header = frame(wire::FrameKind::op_fail, op, 0, 0);
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->link->state() == net::LinkState::lost) continue;
    peer->link->send_copy(header, std::as_bytes(std::span(&body, 1)));
  }
}

void LaneGroup::complete(OpId op) {
  const auto& ended = ops_.op(op);
  for (ChunkId chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].op == op) release_chunk(chunk);
  }
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    std::uint32_t& slab = eager_slab(op, node);
    if (slab != kNone) eager_pools_[node]->give(slab);
    slab = kNone;
  }
  if (ended.failed) lose_state(op);
  if (!ended.failed && ended.verifying) compare_checksums(op);
  if (ended.failed && setup_.shape.lanes > 1 && !ops_.ended()) {
    // Elsewhere nobody will ever submit it, and its failure would be remembered for nothing.
    std::uint32_t lanes = 0;
    for (std::uint32_t i = 0; i < local_ranks_; ++i) lanes |= rank_of(op, i).lanes;
    if (lanes != 0) {
      lane_->report(event::OpFailed{this, ended.key.tensor, ended.key.sequence, ended.status,
                                    ended.about_rank, lanes, Sentence(ended.text)});
    }
  }
  if (data_[op].pins == 0) finalize(op);
}

void LaneGroup::finalize(OpId op) {
  const auto& ended = ops_.op(op);
  OpData& data = data_[op];
  const Errc code = ended.failed ? ended.status : data.verdict;
  const char* text = ended.failed ? ended.text : data.verdict_text;
  const std::uint64_t now = lane_->clock().now_ns();
  auto& counters = lane_->mutable_counters();
  bump(counters.codec_ns, data.encode_ns + data.decode_ns);
  if (lane_->trace().on()) trace_op(op, code, now);
  if (ended.submitted != 0) {
    bump(code == Errc::ok ? counters.ops_completed : counters.ops_failed, std::uint64_t{1});
  }
  // Lossless codecs keep nothing of a reduction.
  const bool keeps = data.lossy || (data.lossless && ended.plan->moves());
  if (data.tensor != nullptr && keeps) {
    data.tensor->lanes[setup_.shape.lane].state_touched = true;
  }
  if (data.tensor != nullptr && code == Errc::ok) {
    TensorLaneStats& stats = data.tensor->lanes[setup_.shape.lane];
    const std::uint64_t started = data.started_ns != 0 ? data.started_ns : now;
    const std::uint64_t encoded = data.first_encode_ns != 0 ? data.first_encode_ns : started;
    const std::uint64_t busy = data.encode_ns + data.decode_ns;
    bump(stats.ops, std::uint64_t{1});
    bump(stats.bytes_raw, data.bytes_raw);
    bump(stats.bytes_sent, data.bytes_sent);
    bump(stats.encode_ns, data.encode_ns);
    bump(stats.decode_ns, data.decode_ns);
    bump(stats.wait_ns, started - data.submitted_ns);
    bump(stats.queue_ns, encoded - started);
    bump(stats.wire_ns, now - encoded > busy ? now - encoded - busy : 0);
    if (data.lossy && data.error.energy() > 0) {
      stats.input_energy.store(data.error.energy(), std::memory_order_relaxed);
      stats.residual_energy.store(data.error.residual_energy(), std::memory_order_relaxed);
    }
  }
  for (std::uint32_t i = 0; i < local_ranks_; ++i) {
    OpRank& rank = rank_of(op, i);
    if (!rank.present || rank.told) continue;
    rank.told = true;
    if (clients_[i] == nullptr) continue;
    --clients_[i]->uses;
    lane_->tell(*clients_[i], rank.ticket, code, text, data.bytes_sent);
  }
  // The rest keeps nobody waiting.
  if (data.tuning != nullptr && data.bytes_raw >= kRateBytes) read_rates(data, now);
  if (ended.submitted != 0) record_op(op, now, code, text);
  ops_.release(op);
  if (!ops_.in_use(op)) {
    data = OpData{};
    for (std::uint32_t i = 0; i < local_ranks_; ++i) rank_of(op, i) = OpRank{};
  }
}

}  // namespace tern::daemon
