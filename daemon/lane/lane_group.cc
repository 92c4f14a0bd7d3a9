#include "daemon/lane/lane_group.h"

#include <algorithm>

#include "base/check.h"
#include "daemon/lane/lane.h"

namespace tern::daemon {

using collective::OpId;

namespace {

// In a job that runs well, ranks of a node are not so far apart, and nobody need be told.
constexpr std::uint64_t kLateNs = 100'000'000;

}  // namespace

LaneGroup::LaneGroup(GroupSetup setup)
    : setup_(std::move(setup)),
      ops_(setup_.shape),
      nodes_(ops_.nodes()),
      local_ranks_(static_cast<std::uint32_t>(setup_.local_clients.size())),
      self_(setup_.shape.node),
      peers_(nodes_, nullptr),
      clients_(local_ranks_, nullptr),
      data_(ops_.slots()),
      ranks_(std::size_t{ops_.slots()} * local_ranks_),
      eager_slabs_(std::size_t{ops_.slots()} * nodes_, kNone),
      choices_(std::size_t{ops_.slots()} * nodes_, tuner::kRaw),
      chunks_(setup_.shape.active_chunks),
      rates_(nodes_) {
  if (setup_.shape.verify) {
    checksums_.resize(std::size_t{ops_.slots()} * setup_.size);
    verify_bodies_.resize(local_ranks_);
  }
  for (auto& chunk : chunks_) {
    chunk.slabs.assign(nodes_, kNone);
    chunk.bytes.assign(nodes_, 0);
  }
  // A peer may have max_ops_in_flight eager ops of its own in flight and as many that it has
  // completed while this node still waits for a third node.
  const std::uint32_t eager_count = 2 * setup_.shape.max_ops_in_flight;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    const bool used = setup_.shape.eager_bytes > 0;
    eager_pools_.push_back(
        std::make_unique<SlabPool>(used ? eager_count : 0, setup_.shape.eager_bytes));
  }
  leaving_.reserve(local_ranks_);
}

void LaneGroup::attach(Lane& lane) {
  lane_ = &lane;
  job_ = &lane.job(setup_.job);
  job_->weight = setup_.weight;
  ++job_->groups;
  for (std::uint32_t i = 0; i < local_ranks_; ++i)
    clients_[i] = lane.client(setup_.local_clients[i]);
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (node == self_) continue;
    peers_[node] = &lane.peer(setup_.node_ids[node], setup_.link, setup_.endpoints[node]);
    ++peers_[node]->groups;
  }
}

void LaneGroup::detach() {
  --job_->groups;
  for (LanePeer* peer : peers_) {
    if (peer != nullptr) --peer->groups;
  }
}

bool LaneGroup::is_untouched() const { return !op_seen_; }

void LaneGroup::renew_peer(std::uint32_t node) {
  --peers_[node]->groups;
  peers_[node] = &lane_->peer(setup_.node_ids[node], setup_.link, setup_.endpoints[node]);
  ++peers_[node]->groups;
}

std::uint32_t LaneGroup::node_of(const LanePeer& peer) const {
  const auto found = std::find(peers_.begin(), peers_.end(), &peer);
  return found == peers_.end() ? collective::kNoSlot
                               : static_cast<std::uint32_t>(found - peers_.begin());
}

bool LaneGroup::all_links_open() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const LanePeer* peer) {
    return peer == nullptr || (peer->link && peer->link->state() == net::LinkState::open);
  });
}

bool LaneGroup::uses_client(const LaneClient& client) const {
  return std::find(clients_.begin(), clients_.end(), &client) != clients_.end();
}

void LaneGroup::forget(const LaneClient& client) {
  std::replace_if(
      clients_.begin(), clients_.end(), [&](const LaneClient* one) { return one == &client; },
      nullptr);
}

bool LaneGroup::idle() const {
  return ops_.live_ops() == 0 &&
         std::none_of(peers_.begin(), peers_.end(), [this](const LanePeer* peer) {
           return peer != nullptr && peer->receiving.group == this;
         });
}

// ---- Frames -------------------------------------------------------------------------------------

net::PayloadPlace LaneGroup::place_payload(LanePeer& peer, std::uint32_t node,
                                           const wire::FrameHeader& header, bool& protocol_ok) {
  Receiving& receiving = peer.receiving;
  const collective::OpKey key{header.tensor, header.op_seq};
  net::PayloadPlace place;
  switch (static_cast<wire::FrameKind>(header.kind)) {
    case wire::FrameKind::announce: {
      const std::size_t eager = header.payload_bytes - sizeof(wire::AnnounceBody);
      if (header.payload_bytes < sizeof(wire::AnnounceBody) || eager > setup_.shape.eager_bytes) {
        protocol_ok = false;
        return place;
      }
      place.prefix = std::span(peer.small).first(sizeof(wire::AnnounceBody));
      if (eager == 0) return place;
      receiving.eager_pool = eager_pools_[node].get();
      receiving.eager_slab = receiving.eager_pool->take();
      if (receiving.eager_slab == kNone) {
        protocol_ok = false;  // more eager ops than the group allows
        return place;
      }
      place.body = receiving.eager_pool->slab(receiving.eager_slab).first(eager);
      return place;
    }
    case wire::FrameKind::contribution: {
      collective::ChunkId chunk = collective::kNoSlot;
      protocol_ok = ops_.expect_contribution(node, key, header.chunk, chunk);
      if (!protocol_ok || chunk == collective::kNoSlot) return place;
      const std::uint32_t slab = chunks_[chunk].slabs[node];
      const auto room = lane_->receive_slabs().slab(slab);
      if (header.payload_bytes > room.size() || header.payload_bytes < wire::kBlockHeaderBytes) {
        protocol_ok = false;
        return place;
      }
      receiving.chunk = chunk;
      receiving.receive_slab = slab;
      place.body = room.first(header.payload_bytes);
      return place;
    }
    case wire::FrameKind::result: {
      OpId op = collective::kNoSlot;
      protocol_ok = ops_.expect_result(node, key, header.chunk, op);
      if (!protocol_ok || op == collective::kNoSlot) return place;
      if (header.payload_bytes > peer.result.size() ||
          header.payload_bytes < wire::kBlockHeaderBytes) {
        protocol_ok = false;
        return place;
      }
      receiving.op = op;
      receiving.pinned_op = op;
      pin(op);
      const Part where = part(op, header.chunk);
      const std::size_t bytes = where.elements * dtype_bytes(dtype(op));
      const std::size_t offset = where.begin * dtype_bytes(dtype(op));
      // Plain elements go straight to the first rank's output; no other copy is made.
      if ((header.flags & wire::kFlagRawBlock) != 0 && rank_of(op, 0).present &&
          header.payload_bytes == wire::kBlockHeaderBytes + bytes) {
        place.prefix = std::span(peer.result).first(wire::kBlockHeaderBytes);
        place.body = {rank_of(op, 0).output + offset, bytes};
      } else {
        place.body = std::span(peer.result).first(header.payload_bytes);
      }
      return place;
    }
    case wire::FrameKind::op_fail:
      if (header.payload_bytes != sizeof(wire::OpFailBody)) protocol_ok = false;
      break;
    case wire::FrameKind::verify:
      if (!setup_.shape.verify ||
          header.payload_bytes != setup_.shape.ranks[node].size() * sizeof(wire::VerifyBody)) {
        protocol_ok = false;
      }
      break;
    case wire::FrameKind::submitted:
      if (header.payload_bytes != sizeof(wire::SubmittedBody)) protocol_ok = false;
      break;
    default:
      break;
  }
  if (protocol_ok) place.body = std::span(peer.small).first(header.payload_bytes);
  return place;
}

void LaneGroup::on_abandoned(LanePeer& peer) {
  Receiving& receiving = peer.receiving;
  if (receiving.pinned_op != collective::kNoSlot) unpin(receiving.pinned_op);
  if (receiving.eager_slab != kNone) receiving.eager_pool->give(receiving.eager_slab);
  if (receiving.orphaned) give_receive_slab(receiving.receive_slab);
}

bool LaneGroup::on_frame(LanePeer& peer, std::uint32_t node, const wire::FrameHeader& header,
                         const net::PayloadPlace& place, bool payload_valid) {
  const Receiving receiving = peer.receiving;
  peer.receiving = Receiving{};
  const collective::OpKey key{header.tensor, header.op_seq};
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  op_seen_ = true;
  if (!payload_valid) {
    bump(lane_->mutable_counters().bad_payloads, std::uint64_t{1});
    peer.receiving = receiving;
    on_abandoned(peer);
    peer.receiving = Receiving{};
    char text[120];
    std::snprintf(text, sizeof(text), "a payload from node %u did not match its checksum", node);
    ops_.fail_key(key, {Errc::corrupt_data, collective::kNoRank, text});
    return true;
  }
  switch (kind) {
    case wire::FrameKind::announce: {
      wire::AnnounceBody body;
      std::memcpy(&body, place.prefix.data(), sizeof(body));
      if (dtype_bytes(static_cast<DType>(body.dtype)) == 0 || body.rank >= setup_.size ||
          body.root >= setup_.size || body.eager_bytes != place.body.size() ||
          body.count > (std::uint64_t{1} << 40)) {
        if (receiving.eager_slab != kNone) receiving.eager_pool->give(receiving.eager_slab);
        return false;
      }
      if (const auto tensor = tensors_.find(key.tensor);
          body.restart_streams != 0 && tensor != tensors_.end()) {
        restart_streams(*tensor->second);
      }
      OpId op = collective::kNoSlot;
      const bool ok = ops_.on_announce(node, key, body, op);
      if (ok && op != collective::kNoSlot && node == kLeader) on_lead(op, body);
      if (receiving.eager_slab != kNone) {
        if (ok && op != collective::kNoSlot && !ops_.op(op).failed) {
          eager_slab(op, node) = receiving.eager_slab;
        } else {
          receiving.eager_pool->give(receiving.eager_slab);
        }
      }
      return ok;
    }
    case wire::FrameKind::grant:
      return header.payload_bytes == 0 && ops_.on_grant(node, key, header.chunk, header.count);
    case wire::FrameKind::contribution:
      if (receiving.orphaned) give_receive_slab(receiving.receive_slab);
      if (receiving.chunk == collective::kNoSlot || receiving.orphaned) return true;
      chunks_[receiving.chunk].bytes[node] = header.payload_bytes;
      ops_.on_contribution(node, receiving.chunk);
      return true;
    case wire::FrameKind::result: {
      if (receiving.op == collective::kNoSlot) return true;
      const OpId op = receiving.op;
      if (!ops_.op(op).failed) {
        ops_.delivering(node, op);
        const Part where = part(op, header.chunk);
        const char* problem = nullptr;
        if (place.prefix.empty()) {
          problem = deliver_block(op, header.chunk, node, place.body);
        } else {
          wire::BlockHeader block;
          if (wire::parse_block_header(place.prefix, block) != wire::BlockError::none ||
              block.codec != static_cast<std::uint8_t>(wire::CodecId::raw) ||
              block.elements != where.elements || block.payload_bytes != place.body.size() ||
              block.dtype != static_cast<std::uint8_t>(dtype(op))) {
            problem = "the block is not what its frame says";
          } else {
            note_result(op, block);
            copy_to_other_ranks(op, where);
          }
        }
        if (problem != nullptr) {
          bump(lane_->mutable_counters().bad_blocks, std::uint64_t{1});
          char text[160];
          std::snprintf(text, sizeof(text), "result of node %u for chunk %u: %s", node,
                        header.chunk, problem);
          ops_.fail(op, {Errc::corrupt_data, collective::kNoRank, text});
          ops_.not_delivered(node, op);
        } else {
          ops_.delivered(node, op);
        }
      }
      unpin(op);
      return true;
    }
    case wire::FrameKind::op_fail: {
      wire::OpFailBody body;
      std::memcpy(&body, place.body.data(), sizeof(body));
      body.text[sizeof(body.text) - 1] = '\0';
      if (body.code <= 0 || body.code >= kErrcCount) return false;
      ops_.on_op_fail(key, {static_cast<Errc>(body.code), body.rank, body.text});
      return true;
    }
    case wire::FrameKind::verify: {
      OpId op = collective::kNoSlot;
      const auto& ranks = setup_.shape.ranks[node];
      // Kept before on_verify, which may find that these were the last.
      op = ops_.find(key);
      if (op != collective::kNoSlot) {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
          wire::VerifyBody body;
          std::memcpy(&body, place.body.data() + i * sizeof(body), sizeof(body));
          if (body.rank != ranks[i]) return false;
          checksums_[std::size_t{op} * setup_.size + body.rank] = body.crc;
        }
      }
      return ops_.on_verify(node, key, op);
    }
    case wire::FrameKind::submitted: {
      wire::SubmittedBody body;
      std::memcpy(&body, place.body.data(), sizeof(body));
      return ops_.on_submitted(node, key, body.ranks);
    }
    default:
      return false;
  }
}

void LaneGroup::unpin(OpId op) {
  TERN_CHECK(data_[op].pins > 0);
  --data_[op].pins;
  if (data_[op].pins == 0 && ops_.in_use(op) && ops_.op(op).completing) finalize(op);
}

void LaneGroup::frame_acked(OpId op) { unpin(op); }

// ---- Ends ---------------------------------------------------------------------------------------

void LaneGroup::end(Errc code, const char* text) {
  for (OpId op = 0; op < ops_.slots(); ++op) {
    if (ops_.in_use(op)) doubt(op);
  }
  ops_.end(code, text);
}

void LaneGroup::fail_key(const collective::OpKey& key, Errc code, std::uint32_t rank,
                         const char* text) {
  ops_.fail_key(key, {code, rank, text});
}

void LaneGroup::drop_tensor(TensorState* tensor) {
  tensors_.erase(tensor->id);
  dropping_.push_back(tensor);
  report_dropped_tensors();
}

void LaneGroup::report_dropped_tensors() {
  std::erase_if(dropping_, [this](TensorState* tensor) {
    for (OpId op = 0; op < ops_.slots(); ++op) {
      if (ops_.in_use(op) && data_[op].tensor == tensor) return false;
    }
    lane_->report(event::TensorDropped{this, tensor});
    return true;
  });
}

void LaneGroup::rank_left(std::uint32_t local_rank) {
  if (!ops_.ended()) ops_.on_rank_left(local_rank);
  leaving_.push_back(local_rank);
}

void LaneGroup::report_released_ranks() {
  std::erase_if(leaving_, [this](std::uint32_t rank) {
    for (OpId op = 0; op < ops_.slots(); ++op) {
      if (ops_.in_use(op) && rank_of(op, rank).present && !rank_of(op, rank).told) return false;
    }
    clients_[rank] = nullptr;
    lane_->report(event::RankReleased{this, rank});
    return true;
  });
}

void LaneGroup::on_timer(std::uint64_t now_ns) {
  ops_.tell_late(now_ns, kLateNs);
  if (setup_.op_timeout_ns != 0 && !ops_.ended()) ops_.expire(now_ns, setup_.op_timeout_ns);
  publish_waiting();
}

int LaneGroup::settle() {
  if (leaving_.empty() && dropping_.empty()) return 0;
  const std::size_t before = leaving_.size() + dropping_.size();
  report_released_ranks();
  report_dropped_tensors();
  return static_cast<int>(before - leaving_.size() - dropping_.size());
}

void LaneGroup::drop_pages() {
  for (auto& pool : eager_pools_) pool->drop_pages();
}

// A line of the flight recorder, and what the tuner is told.
void LaneGroup::record_op(OpId op, std::uint64_t now, Errc code, const char* text) {
  const auto& ended = ops_.op(op);
  const OpData& data = data_[op];
  OpRecord record;
  record.tensor = ended.key.tensor;
  record.sequence = ended.key.sequence;
  record.count = ended.announced_first.count;
  record.bytes_sent = data.bytes_sent;
  record.submitted_ns = data.submitted_ns;
  record.started_ns = data.started_ns;
  record.ended_ns = now;
  record.kind = ended.announced_first.kind;
  record.lane = static_cast<std::uint16_t>(setup_.shape.lane);
  record.dtype = ended.announced_first.dtype;
  record.reduction = ended.announced_first.reduction;
  record.lossy = data.lossy ? 1 : 0;
  record.eager = ended.eager ? 1 : 0;
  if (data.tuning != nullptr) describe_choice(data, now, record);
  lane_->record({this, record, code, Sentence(text)});
}

void LaneGroup::publish_waiting() {
  in_flight_.store(ops_.ops_in_flight(), std::memory_order_relaxed);
  completed_.store(ops_.ops_completed(), std::memory_order_relaxed);
  std::array<WaitingOp, 16> rows;
  std::size_t count = 0;
  for (OpId op = 0; op < ops_.slots() && count < rows.size() && ops_.live_ops() > 0; ++op) {
    const auto& waiting = ops_.op(op);
    if (!ops_.in_use(op) || waiting.started || waiting.failed || waiting.submitted == 0) continue;
    WaitingOp& row = rows[count++];
    row.tensor = waiting.key.tensor;
    row.sequence = waiting.key.sequence;
    row.kind = waiting.announced_first.kind;
    row.since_ns = waiting.first_submit_ns;
    row.missing = ops_.missing_ranks(op, row.ranks);
  }
  waiting_.write(std::span(rows).first(count));
}

}  // namespace tern::daemon
