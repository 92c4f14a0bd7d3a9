// What the lane has to do next, and what has been done.

#include <algorithm>
#include <utility>

#include "collective/mailbox.h"
#include "collective/pass_failures.h"

namespace tern::collective {

PassStep Mailbox::next(std::uint32_t pieces) {
  constexpr std::uint32_t kTurns = 3;
  for (std::uint32_t i = 0; i < kTurns; ++i) {
    const std::uint32_t turn = turn_++ % kTurns;
    PassStep step;
    if (turn == 0) step = offer_step();
    if (turn == 1) step = pass_step();
    if (turn == 2 && pieces > 0) step = piece_step();
    if (step.action != PassAction::none) return step;
  }
  return {};
}

PassStep Mailbox::offer_step() {
  const OfferId id = ready_offers_.first(0);
  if (id == kNoSlot) return {};
  ready_offers_.remove(id);
  Offer& offer = offers_[id];
  PassStep step{PassAction::close, offer.recv, kNoSlot, id, offer.moved, 0};
  switch (offer.state) {
    case OfferState::to_accept:
      step.action = PassAction::accept;
      break;
    case OfferState::to_deliver:
      step.action = PassAction::deliver;
      step.bytes = offer.envelope.bytes();
      break;
    case OfferState::copying:
      step.action = PassAction::copy;
      step.from = offer.number;
      step.bytes = std::min(piece_bytes_, offer.envelope.bytes() - offer.moved);
      break;
    case OfferState::closing:
    case OfferState::waiting:
    case OfferState::coming:
      break;
  }
  return step;
}

PassStep Mailbox::pass_step() {
  const PassId id = ready_passes_.first(kReady);
  if (id == kNoSlot) return {};
  ready_passes_.remove(id);
  Pass& pass = passes_[id];
  PassStep step{PassAction::complete, id, kNoSlot, kNoSlot, 0, 0};
  if (pass.state == PassState::withdrawn) step.action = PassAction::withdraw;
  if (pass.state == PassState::waiting) {
    const std::uint64_t bytes = pass.what.envelope.bytes();
    pass.eager = bytes == 0 || (bytes <= shape_.eager_bytes && !pass.what.in_pieces &&
                                pass.ready == bytes && eager_out_[pass.node] < kEagerReserve);
    step.action = PassAction::offer;
    step.bytes = pass.eager ? bytes : 0;
  }
  return step;
}

PassStep Mailbox::piece_step() {
  const PassId id = ready_passes_.first(kSending);
  if (id == kNoSlot) return {};
  Pass& send = passes_[id];
  const std::uint64_t left = send.what.envelope.bytes() - send.moved;
  const PassStep step{PassAction::piece, id,         kNoSlot,
                      kNoSlot,           send.moved, std::min(piece_bytes_, left)};
  send.moved += step.bytes;
  ++send.holders;
  send.making = send.what.envelope.lossy;
  if (!send.making && has_piece(send, send.moved)) {
    ready_passes_.move_to(kSending, id);
  } else {
    ready_passes_.remove(id);
  }
  return step;
}

void Mailbox::done(const PassStep& step) {
  switch (step.action) {
    case PassAction::accept:
      // A recv may have failed, but not between the step and this.
      offers_[step.offer].state = OfferState::coming;
      break;
    case PassAction::deliver:
      close(step.offer, kDelivered);
      break;
    case PassAction::copy: {
      Offer& offer = offers_[step.offer];
      offer.moved += step.bytes;
      if (offer.moved == offer.envelope.bytes()) {
        close(step.offer, kDelivered);
      } else if (has_piece(passes_[offer.number], offer.moved)) {
        ready_offers_.add(0, step.offer);
      }
      break;
    }
    case PassAction::close: {
      const Known closed = offer(step.offer);
      const PassOutcome outcome = outcome_of(step.offer);
      const PassId recv = offers_[step.offer].recv;
      drop_offer(step.offer);
      if (closed.node == shape_.node) {
        end_send(closed.number, outcome.failure());
        settle(closed.number);
      }
      if (recv != kNoSlot) {
        --passes_[recv].holders;
        settle(recv);
      }
      break;
    }
    case PassAction::complete: {
      const Pass& pass = passes_[step.pass];
      --passing_[pass.what.local_rank];
      ++completed_;
      passes_.give(step.pass);
      break;
    }
    case PassAction::offer: {
      Pass& send = passes_[step.pass];
      send.offered = true;
      if (send.eager) ++eager_out_[send.node];
      break;
    }
    case PassAction::piece: {
      Pass& send = passes_[step.pass];
      const bool was_made = std::exchange(send.making, false);
      if (was_made && send.state == PassState::moving && has_piece(send, send.moved)) {
        ready_passes_.add(kSending, step.pass);
      }
      break;
    }
    case PassAction::none:
    case PassAction::withdraw:
      break;
  }
}

}  // namespace tern::collective
