#include "daemon/lane/pass_pieces.h"

#include <cstdio>
#include <utility>

#include "base/bump.h"
#include "collective/pass_failures.h"
#include "daemon/lane/touch_pages.h"

namespace tern::daemon {

using collective::Mailbox;
using collective::Pass;
using collective::PassId;
using collective::PassStep;

namespace {

// Of all sends and recvs of a group, that an executor may have at once.
constexpr std::uint32_t kPiecesInFlight = 16;

}  // namespace

wire::FrameHeader pass_header(const GroupCore& core, wire::FrameKind kind,
                              const collective::Envelope& envelope, PassId number) noexcept {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.group = core.setup().token;
  header.epoch = core.setup().epoch;
  header.source_node = static_cast<std::uint16_t>(core.self());
  header.tensor = std::uint64_t{envelope.source} << 32 | envelope.destination;
  header.op_seq = number;
  header.chunk = envelope.tag;
  return header;
}

PassPieces::PassPieces(GroupCore& core, const Partners& partners)
    : core_(core),
      partners_(partners),
      blocks_(partners.mailbox, core.setup().seed),
      path_(blocks_, *this, kPiecesInFlight) {}

void PassPieces::attach(LaneResources& resources) {
  blocks_.attach(resources);
  path_.use(*resources.executor);
}

// ---- Pieces that go -----------------------------------------------------------------------------

bool PassPieces::makes_block(const PassStep& step) const noexcept {
  return step.action == collective::PassAction::piece &&
         partners_.mailbox.pass(step.pass).what.envelope.lossy;
}

void PassPieces::send(const PassStep& step) {
  if (makes_block(step)) return encode(step);
  const auto elements = partners_.memories.bytes(step.pass, step);
  touch_pages(elements);
  const Cookie cookie = core_.resources().memory.reserve(core_.job(), wire::Leg::reduce);
  send_made({step, cookie, elements, {this, step.pass, nullptr, SlabPool::kNone}});
}

void PassPieces::encode(const PassStep& step) {
  FrameMemory& memory = core_.resources().memory;
  const PassMemory& own = partners_.memories[step.pass];
  BlockRequest request;
  request.verb = BlockVerb::encode;
  request.op = step.pass;
  request.recipe = own.encodes ? &own.recipe : nullptr;
  request.sum = own.elements.slice(step.offset, step.bytes);
  request.offset = step.offset;
  request.cookie = memory.reserve(core_.job(), wire::Leg::reduce);
  request.slab = memory.send_slabs().take();
  request.block = memory.send_slabs().operand(request.slab);
  path_.submit(request);
}

void PassPieces::on_block(const BlockRequest& request, const BlockCompletion& completion) {
  if (request.verb == BlockVerb::encode) return encoded(request, completion);
  delivered(request, completion);
}

void PassPieces::encoded(const BlockRequest& request, const BlockCompletion& completion) {
  PassStep step{collective::PassAction::piece, request.op};
  step.offset = request.offset;
  step.bytes = request.sum.bytes;
  send_made({step,
             request.cookie,
             host_bytes(request.block).first(completion.bytes),
             {this, request.op, &core_.resources().memory.send_slabs(), request.slab}});
}

void PassPieces::send_made(const Made& piece) {
  const PassId id = piece.step.pass;
  Mailbox& mailbox = partners_.mailbox;
  FrameMemory& memory = core_.resources().memory;
  // It may have failed while its block was made.
  const bool is_moving = mailbox.pass(id).state == collective::PassState::moving;
  if (!is_moving || partners_.memories.fail_if_pages_are_lost(id)) {
    if (piece.lent.pool != nullptr) piece.lent.pool->give(piece.lent.slab);
    memory.withdraw(piece.cookie);
    return mailbox.piece_freed(id);
  }
  const Pass& pass = mailbox.pass(id);
  PassMemory& own = partners_.memories[id];
  own.start(core_.now_ns());
  own.bytes_sent += piece.payload.size();
  own.elements_sent += piece.step.bytes;
  memory.lend(piece.cookie, 1, piece.lent);
  core_.send(pass.node, {pass_header(core_, wire::FrameKind::send_piece, pass.what.envelope, id),
                         {},
                         piece.payload,
                         piece.cookie});
  mailbox.done(piece.step);
}

// ---- Pieces that come ---------------------------------------------------------------------------

bool PassPieces::place(std::uint32_t node, const wire::FrameHeader& header,
                       net::PayloadPlace& place) {
  LanePeer& peer = core_.peer(node);
  const std::size_t bytes = header.payload_bytes;
  filling::Piece piece;
  const Mailbox::Place& at = piece.place;
  if (!partners_.mailbox.expect_piece(node, header.op_seq, bytes, piece.place)) return false;
  if (at.pass == collective::kNoSlot) return true;
  if (at.block_of == 0) {
    place.body = host_bytes(partners_.memories[at.pass].elements.slice(at.offset, bytes));
  } else if (bytes < wire::kBlockHeaderBytes || bytes > peer.results.bytes()) {
    abandoned(node, piece);
    return false;
  } else {
    piece.buffer = peer.results.take();
    place.body = host_bytes(peer.results.operand(piece.buffer)).first(bytes);
  }
  peer.receiving.fills = piece;
  return true;
}

void PassPieces::accept(std::uint32_t node, const net::PayloadPlace& place) {
  const auto* const filled = std::get_if<filling::Piece>(&core_.peer(node).receiving.fills);
  if (filled == nullptr) return;
  const filling::Piece piece = *filled;
  const Mailbox::Place& at = piece.place;
  if (at.block_of != 0) return accept_block(node, piece, place.body);
  partners_.copies.deliver(at.pass, {at.offset, place.body.size()});
  partners_.mailbox.on_piece(at, place.body.size(), Mailbox::Piece::whole);
}

void PassPieces::accept_block(std::uint32_t node, const filling::Piece& piece,
                              std::span<const std::byte> block) {
  const Mailbox::Place& at = piece.place;
  const DType type = partners_.mailbox.pass(at.pass).what.envelope.dtype;
  const PassBlocks::Measure measure = PassBlocks::measure(block, type, at.block_of);
  BlockRequest request;
  request.verb = BlockVerb::deliver;
  request.op = at.pass;
  request.number = at.offer;
  request.node = node;
  request.offset = at.offset;
  request.slab = piece.buffer;
  request.block = core_.peer(node).results.operand(request.slab).slice(0, block.size());
  request.sum = partners_.memories[at.pass].elements.slice(at.offset, measure.bytes);
  if (measure.problem != nullptr) {
    BlockCompletion refused;
    refused.problem = measure.problem;
    return delivered(request, refused);
  }
  partners_.mailbox.landed(at, measure.bytes);
  path_.submit(request);
}

void PassPieces::delivered(const BlockRequest& request, const BlockCompletion& completion) {
  core_.peer(request.node).results.give(request.slab);
  std::uint64_t bytes = request.sum.bytes;
  if (completion.problem != nullptr) {
    bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
    collective::PassText text;
    std::snprintf(text, sizeof(text), "a block of node %u: %s", request.node, completion.problem);
    partners_.mailbox.fail(request.op, {Errc::corrupt_data, collective::kNoRank, text});
    bytes = 0;
  }
  partners_.copies.deliver(request.op, {request.offset, bytes});
  partners_.mailbox.on_piece({request.op, request.number, request.offset, bytes}, bytes,
                             Mailbox::Piece::whole);
}

void PassPieces::damaged(std::uint32_t node) {
  const auto* const filled = std::get_if<filling::Piece>(&core_.peer(node).receiving.fills);
  if (filled != nullptr) end_without(node, *filled, Mailbox::Piece::damaged);
}

void PassPieces::end_without(std::uint32_t node, const filling::Piece& piece, Mailbox::Piece how) {
  if (piece.buffer != SlabPool::kNone) core_.peer(node).results.give(piece.buffer);
  partners_.mailbox.on_piece(piece.place, 0, how);
}

}  // namespace tern::daemon
