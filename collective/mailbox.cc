#include "collective/mailbox.h"

#include <algorithm>

#include "base/random.h"
#include "collective/departures.h"
#include "collective/pass_failures.h"
#include "plan/plan.h"
#include "shm/sharding.h"

namespace tern::collective {
namespace {

constexpr std::uint32_t kBuckets = 64;
// A lane looks at other things after so much.
constexpr std::uint64_t kPieceBytes = 256 << 10;

bool admits(const Envelope& recv, const Envelope& sent) noexcept {
  return recv.destination == sent.destination && recv.tag == sent.tag &&
         (recv.source == kAnySource || recv.source == sent.source);
}

}  // namespace

Mailbox::Mailbox(const GroupShape& shape)
    : shape_(shape),
      piece_bytes_(std::min(shape.chunk_bytes, kPieceBytes)),
      node_of_(shape.group_size(), kNoSlot),
      gone_(shape.group_size(), false),
      passing_(shape.local_ranks(), 0),
      eager_out_(shape.nodes(), 0),
      named_(shape.nodes()),
      recvs_(kBuckets),
      waiting_(kBuckets),
      ready_passes_(2),
      ready_offers_(1) {
  for (std::uint32_t node = 0; node < shape.nodes(); ++node) {
    for (const std::uint32_t rank : shape.ranks[node]) node_of_[rank] = node;
  }
}

std::uint32_t Mailbox::bucket_of(std::uint32_t destination, std::uint32_t tag) noexcept {
  return mix32(mix32(destination) ^ tag) % kBuckets;
}

OfferId Mailbox::find(std::uint32_t node, std::uint64_t number) const noexcept {
  return number < named_[node].size() ? named_[node][number] : kNoSlot;
}

bool Mailbox::is_offered(std::uint32_t node, std::uint64_t number) const noexcept {
  if (number >= passes_.size()) return false;
  const auto id = static_cast<PassId>(number);
  return passes_.in_use(id) && passes_[id].offered && passes_[id].node == node &&
         passes_[id].state != PassState::ended;
}

// ---- From ranks of this node --------------------------------------------------------------------

PassId Mailbox::submit(const Passing& passing) {
  if (passing_[passing.local_rank] >= plan::kMaxPassing) return kNoSlot;
  ++passing_[passing.local_rank];
  const PassId id = passes_.take();
  recvs_.grow(passes_.size());
  ready_passes_.grow(passes_.size());
  passes_[id].what = passing;
  passes_[id].ready = passing.arriving ? 0 : passing.envelope.bytes();
  const Envelope& what = passing.envelope;
  // A client writes to its ring as long as it likes.
  const std::uint32_t own = passing.sends ? what.source : what.destination;
  if (gone_[own]) {
    PassText text;
    end_pass(id, failure_of(passes_[id], {Errc::group_left, own, left_text(own).data()}, text));
    return id;
  }
  if (!passing.sends) {
    const std::uint32_t bucket = bucket_of(what.destination, what.tag);
    for (OfferId offer = waiting_.first(bucket); offer != kNoSlot; offer = waiting_.after(offer)) {
      if (!admits(what, offers_[offer].envelope)) continue;
      meet(offer, id);
      return id;
    }
    recvs_.add(bucket, id);
    if (what.source != kAnySource && gone_[what.source]) fail_of_gone(id, what.source);
    return id;
  }
  passes_[id].node = node_of_[what.destination];
  if (is_here(what.destination)) {
    add_offer({shape_.node, id, what, false, false, kNoSlot});
  } else if (gone_[what.destination]) {
    fail_of_gone(id, what.destination);
  } else {
    ready_passes_.add(kReady, id);
  }
  return id;
}

void Mailbox::fail(PassId id, const Failure& failure) {
  Pass& pass = passes_[id];
  if (pass.state == PassState::ended || pass.state == PassState::withdrawn) return;
  if (pass.what.sends) return fail_send(id, failure);
  if (pass.state == PassState::moving) return close(pass.offer, failure);
  recvs_.remove(id);
  end_pass(id, failure);
}

void Mailbox::fail_send(PassId id, const Failure& failure) {
  Pass& send = passes_[id];
  if (send.node == shape_.node) {
    // Its recv hears of it, and then the send.
    if (send.state == PassState::moving) return close(send.offer, failure);
    drop_offer(send.offer);
    return end_pass(id, failure);
  }
  if (!send.offered) return end_pass(id, failure);
  send.outcome.set(failure);
  send.state = PassState::withdrawn;
  ready_passes_.move_to(kReady, id);
}

void Mailbox::rank_left(std::uint32_t rank) {
  gone_[rank] = true;
  for (PassId id = 0; id < passes_.size(); ++id) {
    if (!passes_.in_use(id)) continue;
    const Envelope& what = passes_[id].what.envelope;
    if (what.source == rank || what.destination == rank) fail_of_gone(id, rank);
  }
  for (OfferId id = 0; id < offers_.size(); ++id) {
    if (!offers_.in_use(id) || offers_[id].state != OfferState::waiting) continue;
    if (offers_[id].envelope.destination == rank) close(id, {Errc::group_left, rank, {}});
  }
}

void Mailbox::fail_of_gone(PassId id, std::uint32_t rank) {
  PassText text;
  fail(id, failure_of(passes_[id], {Errc::group_left, rank, left_text(rank).data()}, text));
}

// ---- From other nodes ---------------------------------------------------------------------------

bool Mailbox::on_offer(const Arriving& arriving) {
  const Envelope& what = arriving.envelope;
  const std::size_t ranks = node_of_.size();
  const std::size_t numbers = shape_.ranks[arriving.node].size() * plan::kMaxPassing;
  if (arriving.number >= numbers || what.source >= ranks || what.destination >= ranks ||
      node_of_[what.source] != arriving.node || !is_here(what.destination) ||
      shm::lane_of_tag(what.destination, what.tag, shape_.lanes) != shape_.lane ||
      find(arriving.node, arriving.number) != kNoSlot) {
    return false;
  }
  if (!arriving.damaged && (dtype_bytes(what.dtype) == 0 || what.count > plan::kMaxElements ||
                            (what.count == 0 && !arriving.eager))) {
    return false;
  }
  add_offer(arriving);
  return true;
}

void Mailbox::add_offer(const Arriving& arriving) {
  const OfferId id = offers_.take();
  waiting_.grow(offers_.size());
  ready_offers_.grow(offers_.size());
  Offer& offer = offers_[id];
  offer.node = arriving.node;
  offer.number = arriving.number;
  offer.envelope = arriving.envelope;
  offer.eager = arriving.eager;
  offer.damaged = arriving.damaged;
  offer.slab = arriving.slab;
  if (arriving.node == shape_.node) {
    passes_[arriving.number].offer = id;
    ++passes_[arriving.number].holders;
  } else {
    auto& named = named_[arriving.node];
    if (named.size() <= arriving.number) named.resize(arriving.number + 1, kNoSlot);
    named[arriving.number] = id;
  }
  const Envelope& what = offer.envelope;
  if (gone_[what.destination]) return close(id, {Errc::group_left, what.destination, {}});
  const std::uint32_t bucket = bucket_of(what.destination, what.tag);
  for (PassId recv = recvs_.first(bucket); recv != kNoSlot; recv = recvs_.after(recv)) {
    if (admits(passes_[recv].what.envelope, what)) return meet(id, recv);
  }
  waiting_.add(bucket, id);
}

void Mailbox::meet(OfferId id, PassId recv_id) {
  Offer& offer = offers_[id];
  Pass& recv = passes_[recv_id];
  waiting_.remove(id);
  recvs_.remove(recv_id);
  offer.recv = recv_id;
  recv.offer = id;
  recv.state = PassState::moving;
  recv.source = offer.envelope.source;
  recv.node = offer.node;
  ++recv.holders;
  const bool is_local = offer.node == shape_.node;
  if (is_local) passes_[offer.number].state = PassState::moving;
  PassText text;
  if (offer.damaged) {
    return close(id, damage_by(offer.node, text));
  }
  const Failure failure = disagreement(offer.envelope, recv.what.envelope, text);
  if (failure.code != Errc::ok) return close(id, failure);
  if (is_local && offer.envelope.bytes() == 0) return close(id, kDelivered);
  offer.state = is_local      ? OfferState::copying
                : offer.eager ? OfferState::to_deliver
                              : OfferState::to_accept;
  if (!is_local || has_piece(passes_[offer.number], 0)) ready_offers_.add(0, id);
}

bool Mailbox::has_piece(const Pass& send, std::uint64_t moved) const noexcept {
  const std::uint64_t left = send.what.envelope.bytes() - moved;
  return left > 0 && send.ready >= moved + std::min(piece_bytes_, left);
}

void Mailbox::arrived(PassId id, std::uint64_t bytes) {
  Pass& send = passes_[id];
  send.ready = bytes;
  if (send.state != PassState::moving) return;
  if (send.node != shape_.node) {
    const bool may_be_sent = !send.making && has_piece(send, send.moved);
    if (may_be_sent && !ready_passes_.has(id)) ready_passes_.add(kSending, id);
  } else if (offers_[send.offer].state == OfferState::copying && !ready_offers_.has(send.offer) &&
             has_piece(send, offers_[send.offer].moved)) {
    ready_offers_.add(0, send.offer);
  }
}

bool Mailbox::on_accept(std::uint32_t node, std::uint64_t number) {
  if (!is_offered(node, number)) return false;
  const auto id = static_cast<PassId>(number);
  Pass& send = passes_[id];
  if (send.eager) return false;
  if (send.state == PassState::withdrawn) return true;
  if (send.state != PassState::waiting) return false;
  send.state = PassState::moving;
  if (has_piece(send, 0)) ready_passes_.move_to(kSending, id);
  return true;
}

bool Mailbox::on_end(std::uint32_t node, std::uint64_t number, const Failure& failure) {
  if (!is_offered(node, number)) return false;
  const auto id = static_cast<PassId>(number);
  const Pass& send = passes_[id];
  const bool all_sent = send.eager || send.moved == send.what.envelope.bytes();
  if (failure.code == Errc::ok && !all_sent) return false;
  end_send(id, failure);
  return true;
}

void Mailbox::end_send(PassId id, const Failure& failure) {
  const Pass& send = passes_[id];
  if (send.eager) --eager_out_[send.node];
  const bool own_counts = send.state == PassState::withdrawn && failure.code != Errc::ok;
  if (!own_counts) return end_pass(id, failure);
  const PassOutcome own = send.outcome;
  end_pass(id, own.failure());
}

bool Mailbox::on_withdraw(std::uint32_t node, std::uint64_t number, const Failure& failure) {
  const OfferId id = find(node, number);
  if (id == kNoSlot || offers_[id].state == OfferState::closing) return true;
  waiting_.remove(id);
  close(id, failure);
  return true;
}

bool Mailbox::on_rank_left(std::uint32_t node, std::uint64_t rank) {
  if (rank >= node_of_.size() || node_of_[rank] != node) return false;
  rank_left(static_cast<std::uint32_t>(rank));
  return true;
}

bool Mailbox::expect_piece(std::uint32_t node, std::uint64_t number, std::uint64_t bytes,
                           Place& place) {
  place = {};
  const OfferId id = find(node, number);
  if (id == kNoSlot || offers_[id].state == OfferState::closing) return true;
  const Offer& offer = offers_[id];
  const std::uint64_t left = offer.envelope.bytes() - offer.landed;
  const bool is_block = offer.envelope.lossy;
  if (offer.state != OfferState::coming || bytes == 0 || left == 0) return false;
  if (!is_block && bytes > left) return false;
  place = {offer.recv, id, offer.landed, is_block ? std::min(left, shape_.chunk_bytes) : 0};
  ++passes_[offer.recv].holders;
  return true;
}

// The recv is held, and holds the offer's slot until it is closed; that may have been.
bool Mailbox::is_coming(const Place& place) const noexcept {
  return offers_.in_use(place.offer) && offers_[place.offer].recv == place.pass &&
         offers_[place.offer].state == OfferState::coming;
}

void Mailbox::landed(const Place& place, std::uint64_t bytes) {
  if (is_coming(place)) offers_[place.offer].landed = place.offset + bytes;
}

void Mailbox::on_piece(const Place& place, std::uint64_t bytes, Piece how) {
  if (place.pass == kNoSlot) return;
  const bool is_open = how != Piece::abandoned && is_coming(place);
  if (is_open && how == Piece::damaged) {
    PassText text;
    close(place.offer, damage_by(offers_[place.offer].node, text));
  } else if (is_open) {
    Offer& offer = offers_[place.offer];
    offer.moved += bytes;
    offer.landed = std::max(offer.landed, place.offset + bytes);
    if (offer.moved == offer.envelope.bytes()) close(place.offer, kDelivered);
  }
  --passes_[place.pass].holders;
  settle(place.pass);
}

// ---- Ends of offers and passes ------------------------------------------------------------------

void Mailbox::close(OfferId id, const Failure& failure) {
  Offer& offer = offers_[id];
  if (offer.state == OfferState::closing) return;
  waiting_.remove(id);
  offer.state = OfferState::closing;
  offer.code = failure.code;
  if (offer.recv != kNoSlot) {
    Pass& recv = passes_[offer.recv];
    if (failure.code == Errc::ok) recv.elements = offer.envelope.count;
    end_pass(offer.recv, failure);
  }
  if (!ready_offers_.has(id)) ready_offers_.add(0, id);
}

Mailbox::Known Mailbox::offer(OfferId id) const noexcept {
  const Offer& offer = offers_[id];
  return {offer.node, offer.number, offer.envelope, offer.slab};
}

PassOutcome Mailbox::outcome_of(OfferId id) const noexcept {
  const Offer& offer = offers_[id];
  if (offer.recv != kNoSlot) return passes_[offer.recv].outcome;
  PassOutcome outcome;
  if (offer.code == Errc::group_left) {
    const auto left = left_text(offer.envelope.destination);
    outcome.set({offer.code, offer.envelope.destination, left.data()});
  } else {
    outcome.set({offer.code, kNoRank, "the sender has withdrawn it"});
  }
  return outcome;
}

void Mailbox::drop_offer(OfferId id) {
  waiting_.remove(id);
  ready_offers_.remove(id);
  const Offer& offer = offers_[id];
  if (offer.node == shape_.node) {
    passes_[offer.number].offer = kNoSlot;
    --passes_[offer.number].holders;
  } else {
    named_[offer.node][offer.number] = kNoSlot;
  }
  offers_.give(id);
}

void Mailbox::end_pass(PassId id, const Failure& failure) {
  Pass& pass = passes_[id];
  if (pass.state == PassState::ended) return;
  pass.outcome.set(failure);
  pass.state = PassState::ended;
  if (pass.what.sends) ready_passes_.remove(id);
  settle(id);
}

void Mailbox::settle(PassId id) {
  const Pass& pass = passes_[id];
  if (pass.state == PassState::ended && pass.holders == 0 && !ready_passes_.has(id)) {
    ready_passes_.add(kReady, id);
  }
}

void Mailbox::piece_freed(PassId send) {
  --passes_[send].holders;
  settle(send);
}

std::uint32_t Mailbox::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  std::uint32_t silent = kNoSlot;
  for (PassId id = 0; id < passes_.size() && passes_.used() > 0; ++id) {
    if (!passes_.in_use(id)) continue;
    Pass& pass = passes_[id];
    const bool is_coming = pass.state == PassState::moving && !pass.what.sends;
    const Pass::Progress progress{pass.state, is_coming ? offers_[pass.offer].moved : pass.moved,
                                  pass.holders};
    if (progress != pass.seen) {
      pass.seen = progress;
      pass.seen_ns = now_ns;
    }
    // Within a node it is the lane itself that lets things move.
    const bool is_over = pass.state == PassState::withdrawn || pass.state == PassState::ended;
    if (!is_over) {
      expire_one(id, now_ns, timeout_ns);
    } else if (pass.node != shape_.node &&
               (pass.holders > 0 || pass.state == PassState::withdrawn) &&
               now_ns - pass.seen_ns >= kLastWordNs) {
      silent = pass.node;
    }
  }
  return silent;
}

void Mailbox::expire_one(PassId id, std::uint64_t now_ns, std::uint64_t timeout_ns) {
  const Pass& pass = passes_[id];
  const bool waits = pass.state == PassState::waiting;
  const std::uint64_t since_ns = waits ? pass.what.now_ns : pass.seen_ns;
  if (timeout_ns == 0 || now_ns - since_ns < timeout_ns) return;
  if (!waits && pass.node == shape_.node) return;
  PassText text;
  fail(id, waits ? timeout_of(pass, timeout_ns, text) : stall_of(pass, timeout_ns, text));
}

void Mailbox::end(Errc code, std::string_view why) {
  if (ended_) return;
  ended_ = true;
  for (PassId id = 0; id < passes_.size(); ++id) {
    if (!passes_.in_use(id) || passes_[id].state == PassState::ended) continue;
    PassText text;
    recvs_.remove(id);
    if (passes_[id].state == PassState::withdrawn) {
      const PassOutcome own = passes_[id].outcome;
      end_pass(id, own.failure());
    } else {
      end_pass(id, failure_of(passes_[id], {code, kNoRank, why}, text));
    }
  }
  for (OfferId id = 0; id < offers_.size(); ++id) {
    if (offers_.in_use(id)) close(id, {code, kNoRank, why});
  }
}

}  // namespace tern::collective
