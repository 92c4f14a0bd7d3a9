#include "daemon/lane/reduce_leg.h"

#include <cstdio>

#include "base/bump.h"
#include "daemon/lane/raw_prefix.h"

namespace tern::daemon {

using collective::Action;
using collective::ActionKind;
using collective::ChunkId;
using collective::OpId;

// ---- Grants -------------------------------------------------------------------------------------

void ReduceLeg::grant(const Action& action) {
  const auto& owned = core_.op(action.op).chunks;
  const bool announced = core_.op(action.op).announces_chunks();
  for (std::uint32_t i = 0; i < action.count; ++i) {
    const ChunkId chunk = core_.ops().chunk_slot(action.op, action.index + i);
    if (announced) {
      chunks_.reserve_sum(chunk, action.op);
    } else {
      chunks_.reserve(chunk, action.op);
    }
  }
  if (announced) return core_.ops().done(action);
  core_.start(action.op);
  tuning_.offer_grant(action.op, action.index);
  wire::FrameHeader header = core_.header(wire::FrameKind::grant, action.op);
  header.leg = static_cast<std::uint8_t>(wire::Leg::reduce);
  header.chunk = owned.chunk(core_.self(), action.index);
  header.count = action.count;
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    if (node != core_.self()) core_.send(node, {header, {}, {}, 0});
  }
  core_.ops().done(action);
}

bool ReduceLeg::accept_grant(std::uint32_t node, const wire::FrameHeader& header) {
  return header.payload_bytes == 0 &&
         core_.ops().on_grant(node, {header.tensor, header.op_seq}, header.chunk, header.count);
}

// ---- Contributions to other nodes ---------------------------------------------------------------

void ReduceLeg::scan(const Action& action) {
  BlockRequest request;
  request.verb = BlockVerb::scan;
  request.op = action.op;
  request.number = core_.op(action.op).chunks.chunk(action.node, action.index);
  request.action = action;
  path_.submit(request);
}

void ReduceLeg::contribute(const Action& action) {
  const OpId op = action.op;
  const auto& chunks = core_.op(op).chunks;
  FrameMemory& memory = core_.resources().memory;
  core_.start(op);
  BlockRequest request;
  request.verb = BlockVerb::encode;
  request.op = op;
  request.number = chunks.chunk(action.node, action.index);
  request.node = action.node;
  core_.peer(action.node).work.sent_bytes += core_.bytes(op, chunks.size(request.number));
  tuning_.offer_contribution(op, request.number);
  request.recipe = &tuning_.recipe(op, {request.number, wire::Leg::reduce, action.node});
  request.action = action;
  request.cookie = memory.reserve(core_.job(), wire::Leg::reduce);
  request.slab = memory.send_slabs().take();
  request.block = memory.send_slabs().operand(request.slab);
  path_.submit(request);
}

void ReduceLeg::contributed(const BlockRequest& request, const BlockCompletion& completion) {
  const OpId op = request.op;
  FrameMemory& memory = core_.resources().memory;
  if (core_.op(op).failed()) {
    memory.send_slabs().give(request.slab);
    memory.withdraw(request.cookie);
    return core_.ops().done(request.action);
  }
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  const std::uint32_t elements = chunks.size(request.number);
  BlockFrame frame{
      core_.block_header(wire::Leg::reduce, op, request.number), {}, {}, request.cookie};
  BorrowedMemory lent{nullptr, collective::kNoSlot, &memory.send_slabs(), request.slab};
  Operand block = request.block.slice(0, completion.bytes);
  if (completion.form == BlockForm::input) {
    memory.send_slabs().give(request.slab);
    lent = {&core_.memory_owner(), op, nullptr, SlabPool::kNone};
    core_.pin(op);
    block = core_.lane_ops().ranks(op)[0].input.slice(core_.bytes(op, chunks.begin(request.number)),
                                                      completion.bytes);
  }
  RawPrefix prefix;
  if (completion.form != BlockForm::encoded) {
    frame.header.flags = wire::kFlagRawBlock;
    frame.prefix = prefix.write(core_.op(op), elements, completion.nonfinite);
  }
  frame.body = host_bytes(block);
  core_.count_sent(op, core_.bytes(op, elements), frame.prefix.size() + frame.body.size(), 1);
  memory.lend(request.cookie, 1, lent);
  core_.send(request.node, frame);
  core_.ops().done(request.action);
}

// ---- Contributions of other nodes ---------------------------------------------------------------

bool ReduceLeg::place_contribution(std::uint32_t node, const wire::FrameHeader& header,
                                   net::PayloadPlace& place) {
  ChunkId chunk = collective::kNoSlot;
  if (!core_.ops().expect_contribution(node, {header.tensor, header.op_seq}, header.chunk, chunk)) {
    return false;
  }
  if (chunk == collective::kNoSlot) return true;
  const std::uint32_t slab = chunks_.slab(chunk, node);
  const auto room = core_.resources().memory.receive_slabs().slab(slab);
  if (header.payload_bytes > room.size() || header.payload_bytes < wire::kBlockHeaderBytes) {
    return false;
  }
  core_.peer(node).receiving.fills = filling::ReceiveSlab{chunk, slab};
  place.body = room.first(header.payload_bytes);
  return true;
}

void ReduceLeg::accept_contribution(std::uint32_t node, const wire::FrameHeader& header) {
  const filling::Anything& fills = core_.peer(node).receiving.fills;
  if (const auto* const orphan = std::get_if<filling::Orphan>(&fills)) return abandoned(*orphan);
  const auto* const filled = std::get_if<filling::ReceiveSlab>(&fills);
  if (filled == nullptr) return;
  chunks_.keep_contribution(filled->chunk, node, header.payload_bytes);
  core_.ops().on_contribution(node, filled->chunk);
}

void ReduceLeg::add(const Action& action) {
  BlockRequest request;
  request.verb = action.kind == ActionKind::begin       ? BlockVerb::begin
                 : action.kind == ActionKind::begin_add ? BlockVerb::begin_add
                                                        : BlockVerb::add;
  request.op = action.op;
  request.number = core_.ops().chunk_number(action.chunk);
  request.node = action.node;
  request.sum =
      action.kind == ActionKind::add ? chunks_.sum(action.chunk) : chunks_.begin_sum(action.chunk);
  if (action.kind != ActionKind::begin) {
    request.block = core_.op(action.op).announces_chunks()
                        ? announced_.kept(action.op, action.node)
                        : chunks_.contribution(action.chunk, action.node);
  }
  request.action = action;
  path_.submit(request);
}

void ReduceLeg::added(const BlockRequest& request, const BlockCompletion& completion) {
  const Action& action = request.action;
  if (completion.problem != nullptr) {
    bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
    char text[160];
    std::snprintf(text, sizeof(text), "contribution of node %u to chunk %u: %s", request.node,
                  request.number, completion.problem);
    core_.ops().fail(action.op, {Errc::corrupt_data, collective::kNoRank, text});
  } else if (action.kind != ActionKind::begin) {
    if (!core_.op(action.op).announces_chunks()) {
      chunks_.release_contribution(action.chunk, action.node);
    }
    LanePeer& peer = core_.peer(action.node);
    peer.link->add_decode_ns(completion.work_ns);
    peer.work.added_ns += completion.work_ns;
    peer.work.added_bytes +=
        core_.bytes(action.op, core_.op(action.op).chunks.size(request.number));
  }
  core_.ops().done(action);
}

// ---- Memory -------------------------------------------------------------------------------------

auto ReduceLeg::is_filling() {
  return [this](std::uint32_t node, std::uint32_t slab) {
    filling::Anything& fills = core_.peer(node).receiving.fills;
    const auto* const filled = std::get_if<filling::ReceiveSlab>(&fills);
    if (filled == nullptr || filled->slab != slab) return false;
    fills = filling::Orphan{slab};
    return true;
  };
}

void ReduceLeg::release(ChunkId chunk) { chunks_.release(chunk, is_filling()); }

void ReduceLeg::release_all(OpId op) { chunks_.release_all(op, is_filling()); }

}  // namespace tern::daemon
