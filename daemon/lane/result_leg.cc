#include "daemon/lane/result_leg.h"

#include <cstdio>

#include "base/bump.h"
#include "daemon/lane/raw_prefix.h"
#include "wire/crc32c.h"

namespace tern::daemon {

using collective::Action;
using collective::ActionKind;
using collective::OpId;

// ---- Results that are made here -----------------------------------------------------------------

BlockRequest ResultLeg::request_for(BlockVerb verb, const Action& action, std::uint32_t number) {
  FrameMemory& memory = core_.resources().memory;
  BlockRequest request;
  request.verb = verb;
  request.op = action.op;
  request.number = number;
  request.node = core_.self();
  request.action = action;
  request.cookie = memory.reserve(core_.job(), wire::Leg::broadcast);
  request.slab = memory.result_slabs().take();
  request.block = memory.result_slabs().operand(request.slab);
  return request;
}

void ResultLeg::finish(const Action& action) {
  const std::uint32_t number = core_.ops().chunk_number(action.chunk);
  BlockRequest request = request_for(BlockVerb::finish, action, number);
  request.recipe =
      &partners_.tuning.recipe(action.op, {number, wire::Leg::broadcast, core_.self()});
  request.sum = partners_.reduce.chunks().sum(action.chunk);
  partners_.path.submit(request);
}

void ResultLeg::finish_parked(const Action& action) {
  const std::uint32_t number = core_.op(action.op).chunks.chunk(core_.self(), action.index);
  BlockRequest request = request_for(BlockVerb::finish_parked, action, number);
  request.recipe = &core_.lane_op(action.op).encoding.recipe;
  partners_.path.submit(request);
}

void ResultLeg::publish(const Action& action) {
  core_.start(action.op);
  const std::uint32_t number = core_.op(action.op).chunks.chunk(core_.self(), action.index);
  BlockRequest request = request_for(BlockVerb::publish, action, number);
  partners_.tuning.offer_moved(action.op, {core_.op(action.op).chunks.begin(number),
                                           core_.op(action.op).chunks.size(number)});
  request.recipe =
      &partners_.tuning.recipe(action.op, {number, wire::Leg::broadcast, core_.self()});
  partners_.path.submit(request);
}

void ResultLeg::send_on(const Action& action) {
  const OpId op = action.op;
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  const std::uint32_t number = chunks.chunk(core_.self(), action.index);
  FrameMemory& memory = core_.resources().memory;
  BlockFrame frame{core_.block_header(wire::Leg::broadcast, op, number),
                   {},
                   held(action),
                   memory.reserve(core_.job(), wire::Leg::broadcast)};
  frame.header.flags = wire::kFlagRawBlock;
  RawPrefix prefix;
  frame.prefix = prefix.write(core_.op(op), chunks.size(number), false);
  const std::uint32_t receivers = this->receivers(op, number);
  core_.count_sent(op, frame.body.size(), frame.prefix.size() + frame.body.size(), receivers);
  core_.pin(op);
  memory.lend(frame.cookie, receivers, {&core_.memory_owner(), op, nullptr, SlabPool::kNone});
  send(op, number, frame);
  core_.ops().done(action);
}

std::span<const std::byte> ResultLeg::held(const Action& action) const {
  const OpId op = action.op;
  const std::uint32_t number = core_.op(op).chunks.chunk(core_.self(), action.index);
  const plan::Range elements = received_elements(op, number);
  const OpRank* const holder = receiver_of(core_.lane_ops().ranks(op), elements);
  TERN_CHECK(holder != nullptr);
  return host_bytes(holder->output_of(elements, core_.bytes(op, 1)));
}

plan::Range ResultLeg::sent_elements(OpId op, std::uint32_t number) const {
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  return {chunks.begin(number), chunks.size(number)};
}

plan::Range ResultLeg::received_elements(OpId op, std::uint32_t number) const {
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  return {chunks.result_begin(number), chunks.size(number)};
}

// Of the result of a chunk, among the other nodes.
std::uint32_t ResultLeg::receivers(OpId op, std::uint32_t number) const {
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  if (chunks.is_sent_on()) return core_.self() == core_.op(op).root_node ? 1 : core_.nodes() - 2;
  const std::uint32_t receiver = chunks.receiver(number);
  if (receiver == collective::ChunkMap::kEveryNode) return core_.nodes() - 1;
  return receiver == core_.self() ? 0 : 1;
}

void ResultLeg::send(OpId op, std::uint32_t number, const BlockFrame& frame) {
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  const std::uint32_t self = core_.self();
  if (chunks.is_sent_on()) {
    for (std::uint32_t step = 1; step < core_.nodes(); ++step) {
      const std::uint32_t node = (self + step) % core_.nodes();
      if (chunks.sends(self, node, number)) core_.send(node, frame);
    }
    return;
  }
  const std::uint32_t receiver = chunks.receiver(number);
  if (receiver == collective::ChunkMap::kEveryNode) {
    core_.send_to_all(frame);
  } else {
    core_.send(receiver, frame);
  }
}

// The payload is one that all nodes have alike.
void ResultLeg::verify(OpId op, std::uint32_t number, std::span<const std::byte> payload) {
  partners_.verifier.add_block(op, number, payload, core_.op(op).announces_chunks());
}

BorrowedMemory ResultLeg::lend(const BlockRequest& request, const BlockCompletion& completion,
                               Operand& body) {
  FrameMemory& memory = core_.resources().memory;
  if (completion.form == BlockForm::encoded || completion.form == BlockForm::elements) {
    body = request.block.slice(0, completion.bytes);
    return {nullptr, collective::kNoSlot, &memory.result_slabs(), request.slab};
  }
  memory.result_slabs().give(request.slab);
  if (completion.form == BlockForm::sum) {
    body = request.sum.slice(0, completion.bytes);
    return {nullptr, collective::kNoSlot, &memory.accumulators(),
            partners_.reduce.chunks().lend_sum(request.action.chunk)};
  }
  const plan::Range elements = sent_elements(request.op, request.number);
  const OpRank* const sender = sender_of(core_.lane_ops().ranks(request.op), elements);
  TERN_CHECK(sender != nullptr);
  body = sender->input_of(elements, core_.bytes(request.op, 1));
  core_.pin(request.op);
  return {&core_.memory_owner(), request.op, nullptr, SlabPool::kNone};
}

void ResultLeg::made(const BlockRequest& request, const BlockCompletion& completion) {
  const Action& action = request.action;
  const OpId op = request.op;
  FrameMemory& memory = core_.resources().memory;
  const bool parked = completion.form == BlockForm::parked;
  const std::uint32_t receivers = this->receivers(op, request.number);
  if (completion.form == BlockForm::none) {
    core_.ops().fail(op, {Errc::internal, collective::kNoRank, "a result cannot be encoded"});
  }
  if (parked || receivers == 0 || core_.op(op).failed()) {
    memory.result_slabs().give(request.slab);
    memory.withdraw(request.cookie);
  } else {
    Operand body;
    const BorrowedMemory lent = lend(request, completion, body);
    BlockFrame frame{core_.block_header(wire::Leg::broadcast, op, request.number),
                     {},
                     host_bytes(body),
                     request.cookie};
    const std::uint32_t elements = core_.op(op).chunks.size(request.number);
    RawPrefix prefix;
    if (completion.form != BlockForm::encoded) {
      frame.header.flags = wire::kFlagRawBlock;
      frame.prefix = prefix.write(core_.op(op), elements, completion.nonfinite);
    }
    core_.count_sent(op, core_.bytes(op, elements), frame.prefix.size() + frame.body.size(),
                     receivers);
    verify(op, request.number,
           completion.form == BlockForm::encoded ? frame.body.subspan(wire::kBlockHeaderBytes)
                                                 : frame.body);
    memory.lend(request.cookie, receivers, lent);
    send(op, request.number, frame);
    if (completion.problem != nullptr) {
      core_.ops().fail(op, {Errc::internal, collective::kNoRank, completion.problem});
    }
  }
  if (action.kind == ActionKind::finish) partners_.reduce.release(action.chunk);
  if (parked) {
    core_.ops().parked(action);
  } else {
    core_.ops().done(action);
  }
}

// ---- Results of other nodes ---------------------------------------------------------------------

bool ResultLeg::place(std::uint32_t node, const wire::FrameHeader& header,
                      net::PayloadPlace& place) {
  OpId op = collective::kNoSlot;
  if (!core_.ops().expect_result(node, {header.tensor, header.op_seq}, header.chunk, op)) {
    return false;
  }
  if (op == collective::kNoSlot) return true;
  LanePeer& peer = core_.peer(node);
  if (header.payload_bytes > peer.results.bytes() ||
      header.payload_bytes < wire::kBlockHeaderBytes) {
    return false;
  }
  const std::uint32_t taken = peer.results.take();
  peer.receiving.fills = filling::ResultBuffer{op, taken};
  core_.pin(op);
  const auto buffer = host_bytes(peer.results.operand(taken));
  const plan::Range elements = received_elements(op, header.chunk);
  const OpRank* const first = receiver_of(core_.lane_ops().ranks(op), elements);
  // Plain elements go straight to the first rank's output; no other copy is made.
  if ((header.flags & wire::kFlagRawBlock) != 0 && first != nullptr &&
      core_.lane_op(op).slots() == nullptr &&
      header.payload_bytes == wire::kBlockHeaderBytes + core_.bytes(op, elements.count)) {
    place.prefix = buffer.first(wire::kBlockHeaderBytes);
    place.body = host_bytes(first->output_of(elements, core_.bytes(op, 1)));
  } else {
    place.body = buffer.first(header.payload_bytes);
  }
  return true;
}

void ResultLeg::accept(std::uint32_t node, const wire::FrameHeader& header,
                       const net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const auto* const filled = std::get_if<filling::ResultBuffer>(&peer.receiving.fills);
  if (filled == nullptr) return;
  BlockRequest request;
  request.verb = BlockVerb::deliver;
  request.in_place = !place.prefix.empty();
  request.op = filled->op;
  request.number = header.chunk;
  request.node = node;
  request.slab = filled->buffer;
  request.block = peer.results.operand(request.slab)
                      .slice(0, request.in_place ? place.prefix.size() : place.body.size());
  core_.ops().delivering(node, request.op);
  if (core_.op(request.op).failed()) return delivered(request, {});
  partners_.path.submit(request);
}

// Of a result that has come.
std::span<const std::byte> ResultLeg::payload_of(const BlockRequest& request) const {
  if (!request.in_place) return host_bytes(request.block).subspan(wire::kBlockHeaderBytes);
  const plan::Range elements = received_elements(request.op, request.number);
  const OpRank* const first = receiver_of(core_.lane_ops().ranks(request.op), elements);
  return host_bytes(first->output_of(elements, core_.bytes(request.op, 1)));
}

void ResultLeg::delivered(const BlockRequest& request, const BlockCompletion& completion) {
  const OpId op = request.op;
  core_.peer(request.node).results.give(request.slab);
  if (core_.op(op).failed()) {
    core_.ops().not_delivered(op);
  } else if (completion.problem != nullptr) {
    bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
    char text[160];
    std::snprintf(text, sizeof(text), "result of node %u for chunk %u: %s", request.node,
                  request.number, completion.problem);
    core_.ops().fail(op, {Errc::corrupt_data, collective::kNoRank, text});
    core_.ops().not_delivered(op);
  } else {
    partners_.tuning.compare(op, completion.header);
    verify(op, request.number, payload_of(request));
    core_.ops().delivered(op, request.number);
  }
  core_.memory_owner().frame_acked(op);  // what the frame had pinned
}

}  // namespace tern::daemon
