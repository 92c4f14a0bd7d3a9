#include "daemon/lane/announcements.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "base/bump.h"
#include "base/check.h"
#include "collective/op_plan.h"
#include "daemon/lane/raw_prefix.h"
#include "daemon/lane/touch_pages.h"
#include "plan/plans.h"

namespace tern::daemon {

using collective::Action;
using collective::OpId;

// ---- What this node has -------------------------------------------------------------------------

const codec::Recipe* Announcements::recipe_of(OpId op) {
  const collective::GroupShape& shape = core_.setup().shape;
  const LaneOp& data = core_.lane_op(op);
  if (!collective::may_bring_block(core_.op(op), shape)) return nullptr;
  // What the tuner chooses may have become another since the op was submitted.
  if (data.encoding.tuning == nullptr &&
      core_.op(op).contribution == collective::Contribution::elements)
    return nullptr;
  // All other nodes get the same.
  const std::uint32_t other = (core_.self() + 1) % core_.nodes();
  const codec::Recipe& recipe = partners_.tuning.recipe(op, {0, wire::Leg::reduce, other});
  return EagerInputs::fits(recipe, blocks().whole(op).elements, shape) ? &recipe : nullptr;
}

void Announcements::announce(const Action& action) {
  const OpId op = action.op;
  const collective::Op& about = core_.op(op);
  if (about.announces_chunks()) {
    return announce_chunks(action, 1);
  }
  const ChunkPart all = blocks().whole(op);
  if (!about.is_eager() || all.elements == 0 || !about.plan->reduces()) return send(action, {});
  BlockRequest request;
  request.recipe = recipe_of(op);
  const bool has_slots = core_.lane_op(op).slots() != nullptr;
  if (has_slots) request.recipe = &core_.lane_op(op).encoding.recipe;
  request.verb = request.recipe != nullptr ? BlockVerb::encode : BlockVerb::gather;
  if (request.verb == BlockVerb::gather && inputs().is_plain(op)) {
    return send(action, {{inputs().plain(op, all), blocks().bytes(op, all)}, false});
  }
  if (request.verb == BlockVerb::encode && !has_slots) {
    // With what is owed before the op, as the block will carry it.
    partners_.tuning.offer_whole(op);
    save_state(op, *request.recipe, 0);
  }
  request.op = op;
  request.node = core_.self();
  request.action = action;
  request.slab = values_.take(core_.self());
  TERN_CHECK(request.slab != SlabPool::kNone);
  request.block = values_.operand(core_.self(), request.slab);
  partners_.path.submit(request);
}

// What the block, or elements that carry what is owed, will change.
void Announcements::save_state(OpId op, const codec::Recipe& recipe, std::uint32_t number) {
  const LaneOp& data = core_.lane_op(op);
  if (!data.encoding.lossy || data.slots() != nullptr) return;
  TensorTuning* const tuning = data.encoding.tuning;
  const bool owes = tuning != nullptr && tuning->residual_pending(number) != 0;
  if (owes || codec::is_lossy(recipe)) partners_.upkeep.save(op);
}

void Announcements::gathered(const BlockRequest& request, const BlockCompletion& completion) {
  const OpId op = request.op;
  if (core_.op(op).announces_chunks()) return chunk_gathered(request, completion);
  const bool lies_in_input = completion.form == BlockForm::input;
  if (core_.op(op).failed() || lies_in_input) values_.give(core_.self(), request.slab);
  if (core_.op(op).failed()) return core_.ops().done(request.action);
  if (lies_in_input) {
    const std::byte* const input = inputs().plain(op, blocks().whole(op));
    return send(request.action, {{input, completion.bytes}, false});
  }
  // This node must add exactly what the others get.
  const bool is_block = completion.form == BlockForm::encoded;
  values_.keep(op, core_.self(), {request.slab, completion.bytes, is_block});
  send(request.action, {host_bytes(request.block).first(completion.bytes), is_block});
}

// What all other nodes are told alike, without values.
wire::AnnounceBody Announcements::body_of(OpId op) {
  const collective::Op& about = core_.op(op);
  const collective::GroupShape& shape = core_.setup().shape;
  wire::AnnounceBody body = about.announced_first;
  body.rank = shape.ranks[core_.self()][0];
  body.eager_bytes = 0;
  body.flags &= static_cast<std::uint8_t>(~collective::kOwnFlags);
  if (collective::declines(about, shape)) body.flags |= wire::kAnnounceDeclines;
  if (core_.lane_op(op).slots() != nullptr && shape.verify && !about.is_eager()) {
    body.flags |= wire::kAnnounceClientBlocks;
    partners_.verifier.compare_blocks(op);
  }
  if (TensorState* const tensor = core_.lane_op(op).tensor) {
    body.restart_streams = partners_.upkeep.take_lost(*tensor) ? 1 : 0;
    partners_.tuning.announce(op, body);
  }
  return body;
}

// To each other node what concerns it.
void Announcements::send(const Action& action, const Contribution& contribution) {
  const OpId op = action.op;
  const collective::Op& about = core_.op(op);
  const collective::GroupShape& shape = core_.setup().shape;
  wire::AnnounceBody body = body_of(op);
  if (contribution.is_block) body.flags |= wire::kAnnounceBlock;
  const wire::FrameHeader header = core_.header(wire::FrameKind::announce, op);
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    LanePeer* const peer = core_.peers()[node];
    if (peer == nullptr || peer->is_lost()) continue;
    const std::uint64_t raw = collective::eager_bytes_of(about, core_.self(), node, shape);
    std::span<const std::byte> values;
    if (contribution.is_block) {
      values = contribution.bytes;
    } else if (raw != 0) {
      values = inputs().eager_values(op, node, contribution.bytes);
    }
    // Before they are sent they are read, to know whether they are there.
    touch_pages(values);
    if (partners_.clients.fail_if_pages_are_lost(op)) break;
    body.eager_bytes = static_cast<std::uint32_t>(values.size());
    if (about.pairs != nullptr) body.counts_crc = about.pairs->sent_crc(node);
    peer->link->send_copy(header, std::as_bytes(std::span(&body, 1)), values);
    core_.count_sent(op, raw, values.size(), 1);
    core_.resources().count_block(sizeof(body) + values.size());
  }
  core_.ops().done(action);
}

// ---- To each owner its chunk --------------------------------------------------------------------

// In the order of contributions: first to whom adds this node's first.
void Announcements::announce_chunks(const Action& action, std::uint32_t step) {
  const OpId op = action.op;
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  for (; step < core_.nodes(); ++step) {
    const std::uint32_t node = (core_.self() + core_.nodes() - step) % core_.nodes();
    LanePeer& peer = core_.peer(node);
    if (peer.is_lost()) continue;
    if (chunks.owned(node) == 0) {
      const wire::AnnounceBody body = body_of(op);
      peer.link->send_copy(core_.header(wire::FrameKind::announce, op),
                           std::as_bytes(std::span(&body, 1)));
      core_.resources().count_block(sizeof(body));
      continue;
    }
    BlockRequest request;
    request.verb = BlockVerb::encode;
    request.op = op;
    request.number = chunks.chunk(node, 0);
    request.node = node;
    const std::uint32_t elements = chunks.size(request.number);
    peer.work.sent_bytes += core_.bytes(op, elements);
    partners_.tuning.offer_contribution(op, request.number);
    static const codec::Recipe kRaw;
    request.recipe = &partners_.tuning.recipe(op, {request.number, wire::Leg::reduce, node});
    if (!EagerInputs::fits(*request.recipe, elements, core_.setup().shape)) request.recipe = &kRaw;
    if (!partners_.upkeep.has_saved(op)) save_state(op, *request.recipe, request.number);
    request.action = action;
    request.slab = values_.take(core_.self());
    TERN_CHECK(request.slab != SlabPool::kNone);
    request.block = values_.operand(core_.self(), request.slab);
    return partners_.path.submit(request);
  }
  core_.ops().done(action);
  begin_if_all_announced(op);
}

void Announcements::begin_if_all_announced(OpId op) noexcept {
  const collective::Op& about = core_.op(op);
  if (about.announces_chunks() && about.has_started()) core_.start(op);
}

void Announcements::chunk_gathered(const BlockRequest& request, const BlockCompletion& completion) {
  const OpId op = request.op;
  if (core_.op(op).failed()) {
    values_.give(core_.self(), request.slab);
    return core_.ops().done(request.action);
  }
  const collective::ChunkMap& chunks = core_.op(op).chunks;
  const std::uint32_t elements = chunks.size(request.number);
  std::span<const std::byte> values = host_bytes(request.block).first(completion.bytes);
  if (completion.form == BlockForm::input) {
    values = {inputs().plain(op, blocks().part(op, request.number)), completion.bytes};
  }
  RawPrefix raw;
  std::span<const std::byte> prefix;
  if (completion.form != BlockForm::encoded) {
    prefix = raw.write(core_.op(op), elements, completion.nonfinite);
  }
  wire::AnnounceBody body = body_of(op);
  body.flags |= wire::kAnnounceBlock;
  body.eager_bytes = static_cast<std::uint32_t>(prefix.size() + values.size());
  std::array<std::byte, sizeof(body) + wire::kBlockHeaderBytes> head;
  std::memcpy(head.data(), &body, sizeof(body));
  if (!prefix.empty()) std::memcpy(head.data() + sizeof(body), prefix.data(), prefix.size());
  LanePeer& peer = core_.peer(request.node);
  if (!peer.is_lost()) {
    peer.link->send_copy(core_.header(wire::FrameKind::announce, op),
                         std::span(head).first(sizeof(body) + prefix.size()), values);
    core_.count_sent(op, core_.bytes(op, elements), body.eager_bytes, 1);
    core_.resources().count_block(sizeof(body) + body.eager_bytes);
  }
  values_.give(core_.self(), request.slab);
  announce_chunks(request.action,
                  (core_.self() + core_.nodes() - request.node) % core_.nodes() + 1);
}

// ---- What all nodes have ------------------------------------------------------------------------

void Announcements::reduce(const Action& action) {
  const OpId op = action.op;
  const LaneOp& data = core_.lane_op(op);
  if (data.tensor != nullptr) core_.start(op);
  if (data.encoding.tuning != nullptr) {
    partners_.tuning.settle(op);
    if (collective::may_bring_block(core_.op(op), core_.setup().shape)) {
      compare(op);
      partners_.tuning.pass_on_lead(op);
    } else {
      partners_.tuning.offer_whole(op);
    }
  }
  BlockRequest request;
  request.verb = BlockVerb::reduce;
  request.op = op;
  request.action = action;
  partners_.path.submit(request);
}

void Announcements::compare(OpId op) {
  for (std::uint32_t node = 0; node < core_.nodes(); ++node) {
    wire::BlockHeader header;  // of elements
    const bool is_block = values_.keeps_block(op, node);
    const bool sound = !is_block || wire::parse_block_header(host_bytes(values_.kept(op, node)),
                                                             header) == wire::BlockError::none;
    if (sound && node != core_.self()) partners_.tuning.compare(op, header);
  }
}

void Announcements::reduced(const BlockRequest& request, const BlockCompletion& completion) {
  if (completion.problem != nullptr) {
    bump(core_.resources().counters->bad_blocks, std::uint64_t{1});
    char text[160];
    std::snprintf(text, sizeof(text), "what node %u contributes with its announcement: %s",
                  completion.node, completion.problem);
    core_.ops().fail(request.op, {Errc::corrupt_data, collective::kNoRank, text});
  }
  core_.ops().done(request.action);
}

// ---- Frames -------------------------------------------------------------------------------------

bool Announcements::place(std::uint32_t node, const wire::FrameHeader& header,
                          net::PayloadPlace& place) {
  if (header.payload_bytes < sizeof(wire::AnnounceBody)) return false;
  place.prefix = std::span(core_.peer(node).small).first(sizeof(wire::AnnounceBody));
  const std::size_t bytes = header.payload_bytes - sizeof(wire::AnnounceBody);
  if (bytes > EagerInputs::most_bytes(core_.setup().shape)) return false;
  if (bytes == 0) return true;
  const std::uint32_t slab = values_.take(node);
  if (slab == SlabPool::kNone) return false;  // more eager ops than the group allows
  core_.peer(node).receiving.fills = filling::EagerSlab{slab};
  place.body = host_bytes(values_.operand(node, slab)).first(bytes);
  return true;
}

bool Announcements::is_sound(const wire::AnnounceBody& body, std::size_t bytes) const noexcept {
  const std::uint32_t ranks = core_.setup().size;
  return dtype_bytes(static_cast<DType>(body.dtype)) != 0 && body.rank < ranks &&
         body.root < ranks && body.eager_bytes == bytes && body.count <= plan::kMaxElements;
}

bool Announcements::accept(std::uint32_t node, const wire::FrameHeader& header,
                           const net::PayloadPlace& place) {
  wire::AnnounceBody body;
  std::memcpy(&body, place.prefix.data(), sizeof(body));
  const collective::OpKey key{header.tensor, header.op_seq};
  const bool sound = is_sound(body, place.body.size());
  if (sound && body.restart_streams != 0) {
    if (TensorState* const tensor = core_.tensor(key.tensor)) {
      partners_.upkeep.restart_streams(*tensor);
    }
  }
  OpId op = collective::kNoSlot;
  const bool ok = sound && core_.ops().on_announce(node, key, body, op);
  // An unknown kind fails its op for all. Here the op has ended already, and its end is forgotten.
  const plan::Plan* const plan = plan::find(body.kind);
  if (ok && (plan == nullptr || plan->passes()) && core_.ops().find(key) == collective::kNoSlot) {
    core_.tell_failure(node, key, {Errc::mismatch, body.rank, collective::kUnknownKind});
  }
  const bool known = ok && op != collective::kNoSlot;
  if (known) {
    if (node == kLeadingNode) {
      partners_.tuning.hear_lead(op, body);
    } else {
      partners_.tuning.hear_early(op, body);
    }
    if ((body.flags & wire::kAnnounceClientBlocks) != 0) partners_.verifier.compare_blocks(op);
    begin_if_all_announced(op);
  }
  accept_values(node, known && !core_.op(op).failed() ? op : collective::kNoSlot, body);
  return ok;
}

void Announcements::accept_values(std::uint32_t node, OpId op, const wire::AnnounceBody& body) {
  const auto* const filled = std::get_if<filling::EagerSlab>(&core_.peer(node).receiving.fills);
  if (filled == nullptr) return;
  if (op == collective::kNoSlot) return abandoned(node, *filled);
  values_.keep(op, node,
               {filled->slab, body.eager_bytes, (body.flags & wire::kAnnounceBlock) != 0});
}

}  // namespace tern::daemon
