#include "daemon/lane/point_to_point.h"

#include <cstdio>
#include <cstring>

#include "daemon/lane/fail_body.h"
#include "daemon/lane/pass_ledger.h"
#include "daemon/lane/touch_pages.h"

namespace tern::daemon {

using collective::Envelope;
using collective::Mailbox;
using collective::Pass;
using collective::PassAction;
using collective::PassId;
using collective::PassOutcome;
using collective::PassStep;
using wire::FrameKind;

PointToPoint::PointToPoint(GroupCore& core, LaneGroup& group, std::span<SlabPool> pools)
    : core_(core),
      mailbox_(core.setup().shape),
      peers_(core),
      memories_(core, mailbox_),
      copies_(core, mailbox_),
      pieces_(core, {mailbox_, memories_, copies_}),
      group_(group),
      pools_(pools) {}

// ---- Entries ------------------------------------------------------------------------------------

void PointToPoint::submit(const Submitter& submitter, const shm::SubmitEntry& entry) {
  LaneClient& client = submitter.client;
  LaneClients& clients = core_.resources().clients;
  char text[96];
  if (const char* problem = peers_.objection(text)) {
    return clients.refuse(client, entry.ticket, Errc::unsupported, problem);
  }
  const bool sends = submitter.plan.sends();
  if (sends && submitter.asks_for_loss) {
    const std::uint32_t node = core_.setup().shape.node_of_rank(entry.root);
    if (const char* problem = peers_.objection_to_loss(node, text)) {
      return clients.refuse(client, entry.ticket, Errc::unsupported, problem);
    }
  }
  const std::uint32_t rank = core_.setup().shape.ranks[core_.self()][submitter.local_rank];
  collective::Passing passing;
  passing.kind = submitter.plan.number;
  passing.sends = sends;
  passing.local_rank = submitter.local_rank;
  passing.envelope = {sends ? rank : entry.root,
                      sends ? entry.root : rank,
                      static_cast<std::uint32_t>(entry.sequence),
                      static_cast<DType>(entry.dtype),
                      entry.count,
                      submitter.asks_for_loss};
  passing.now_ns = core_.now_ns();
  const bool encodes = sends && submitter.asks_for_loss && submitter.encoding->lossy;
  passing.in_pieces = encodes;
  passing.arriving = sends && (entry.flags & shm::kEntryHasProgress) != 0;
  const PassId id = mailbox_.submit(passing);
  if (id == collective::kNoSlot) {
    return clients.refuse(client, entry.ticket, Errc::would_block,
                          "more sends and recvs in flight than a rank may have");
  }
  copies_.begin(id, entry, client);
  PassMemory& memory = memories_.begin(id);
  memory.client = &client;
  memory.ticket = entry.ticket;
  memory.elements = {&client.arena, sends ? entry.input_offset : entry.output_offset,
                     passing.envelope.bytes()};
  memory.encodes = encodes;
  if (encodes) memory.recipe = submitter.encoding->recipe;
  ++client.uses;
}

void PointToPoint::cancel(const LaneClient& client, std::uint64_t ticket,
                          const collective::Failure& why) {
  const std::optional<PassId> pass = memories_.find(client, ticket);
  if (pass && mailbox_.in_use(*pass)) mailbox_.fail(*pass, why);
}

bool PointToPoint::expire(std::uint64_t now_ns) {
  const bool moved = copies_.expire(now_ns, core_.setup().op_timeout_ns);
  const std::uint32_t node = mailbox_.expire(now_ns, core_.setup().op_timeout_ns);
  if (node == collective::kNoSlot || core_.peer(node).is_lost()) return moved;
  char text[96];
  std::snprintf(text, sizeof(text), "it has not ended a send or recv of this node for %llu s",
                static_cast<unsigned long long>(Mailbox::kLastWordNs / 1'000'000'000));
  core_.peer(node).link->give_up(Errc::peer_lost, text);
  return moved;
}

void PointToPoint::rank_left(std::uint32_t local_rank) {
  const std::uint32_t rank = core_.setup().shape.ranks[core_.self()][local_rank];
  mailbox_.rank_left(rank);
  peers_.add_departure(rank);
}

bool PointToPoint::uses_rank(std::uint32_t local_rank) const noexcept {
  for (PassId id = 0; id < mailbox_.slots(); ++id) {
    if (mailbox_.in_use(id) && mailbox_.pass(id).what.local_rank == local_rank) return true;
  }
  return false;
}

// ---- Steps --------------------------------------------------------------------------------------

// Memory that is read or copied is charged as codec time is: to the turn, and to the job's part. A
// block is charged where it is made.
void PointToPoint::carry_out(const PassStep& step) {
  if (pieces_.makes_block(step)) return dispatch(step);
  const std::uint64_t begin = core_.now_ns();
  dispatch(step);
  core_.resources().codec.spent.charge(core_.now_ns() - begin);
}

void PointToPoint::dispatch(const PassStep& step) {
  switch (step.action) {
    case PassAction::none:
      break;
    case PassAction::offer:
      return offer(step);
    case PassAction::piece:
      return pieces_.send(step);
    case PassAction::withdraw:
      return withdraw(step);
    case PassAction::accept:
      return accept(step);
    case PassAction::deliver:
      return deliver(step);
    case PassAction::copy:
      return copy(step);
    case PassAction::close:
      return close(step);
    case PassAction::complete:
      return complete(step);
  }
}

void PointToPoint::offer(const PassStep& step) {
  const Pass& send = mailbox_.pass(step.pass);
  const auto values = memories_.bytes(step.pass, step);
  touch_pages(values);
  if (memories_.fail_if_pages_are_lost(step.pass)) return;
  const Envelope& envelope = send.what.envelope;
  wire::SendOfferBody body{};
  body.count = envelope.count;
  body.dtype = static_cast<std::uint8_t>(envelope.dtype);
  body.eager = send.eager ? 1 : 0;
  body.lossy = envelope.lossy ? 1 : 0;
  LanePeer& peer = core_.peer(send.node);
  if (!peer.is_lost()) {
    peer.link->send_copy(pass_header(core_, FrameKind::send_offer, envelope, step.pass),
                         std::as_bytes(std::span(&body, 1)), values);
    core_.resources().count_block(sizeof(body) + values.size());
  }
  memories_[step.pass].bytes_sent += values.size();
  memories_[step.pass].elements_sent += values.size();
  if (send.eager) memories_[step.pass].started_ns = core_.now_ns();
  mailbox_.done(step);
}

void PointToPoint::withdraw(const PassStep& step) {
  const Pass& send = mailbox_.pass(step.pass);
  tell(send.node, pass_header(core_, FrameKind::send_withdraw, send.what.envelope, step.pass),
       send.outcome);
  mailbox_.done(step);
}

void PointToPoint::accept(const PassStep& step) {
  const Mailbox::Known offer = mailbox_.offer(step.offer);
  memories_[step.pass].started_ns = core_.now_ns();
  LanePeer& peer = core_.peer(offer.node);
  if (!peer.is_lost()) {
    peer.link->send_copy(pass_header(core_, FrameKind::send_accept, offer.envelope, offer.number),
                         {});
  }
  mailbox_.done(step);
}

void PointToPoint::deliver(const PassStep& step) {
  const Mailbox::Known offer = mailbox_.offer(step.offer);
  memories_[step.pass].started_ns = core_.now_ns();
  if (step.bytes > 0) {
    const auto values = host_bytes(pools_[offer.node].operand(offer.slab));
    std::memcpy(memories_.bytes(step.pass, step).data(), values.data(), step.bytes);
    copies_.deliver(step.pass, {0, step.bytes});
  }
  mailbox_.done(step);
}

// Both ends may be the same rank, and the memory the same.
void PointToPoint::copy(const PassStep& step) {
  for (const PassId id : {step.pass, step.from}) {
    memories_[id].start(core_.now_ns());
  }
  std::memmove(memories_.bytes(step.pass, step).data(), memories_.bytes(step.from, step).data(),
               step.bytes);
  if (memories_.fail_if_pages_are_lost(step.from)) return;
  if (memories_.fail_if_pages_are_lost(step.pass)) return;
  copies_.deliver(step.pass, {step.offset, step.bytes});
  mailbox_.done(step);
}

void PointToPoint::close(const PassStep& step) {
  const Mailbox::Known offer = mailbox_.offer(step.offer);
  if (offer.slab != SlabPool::kNone) pools_[offer.node].give(offer.slab);
  if (offer.node != core_.self() && !core_.ops().ended()) {
    tell(offer.node, pass_header(core_, FrameKind::send_end, offer.envelope, offer.number),
         mailbox_.outcome_of(step.offer));
  }
  mailbox_.done(step);
}

void PointToPoint::complete(const PassStep& step) {
  const Pass& pass = mailbox_.pass(step.pass);
  PassMemory& memory = memories_[step.pass];
  const bool received = !pass.what.sends && pass.outcome.code == Errc::ok;
  --memory.client->uses;
  core_.resources().clients.tell(
      *memory.client, {memory.ticket, pass.outcome.code, pass.outcome.text, memory.bytes_sent,
                       received ? pass.source : 0, received ? pass.elements : 0});
  write_down(core_, group_, pass, memory);
  copies_.end(step.pass);
  memories_.clear(step.pass);
  mailbox_.done(step);
}

// ---- What other nodes are told ------------------------------------------------------------------

void PointToPoint::tell(std::uint32_t node, const wire::FrameHeader& header,
                        const PassOutcome& outcome) {
  LanePeer& peer = core_.peer(node);
  if (peer.is_lost()) return;
  if (outcome.code == Errc::ok) return peer.link->send_copy(header, {});
  const FailBody told({outcome.code, outcome.about_rank, outcome.text});
  peer.link->send_copy(header, told.payload());
}

}  // namespace tern::daemon
