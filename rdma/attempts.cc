#include "rdma/attempts.h"

#include <algorithm>
#include <utility>

namespace tern::rdma {
namespace {

// After each failure of a path the next attempt waits twice as long, this often.
constexpr std::uint32_t kMaxDoublings = 6;
// Set-ups that a peer may give up. A job that ends at once gives up some, too.
constexpr std::uint32_t kMostAbandoned = 16;

}  // namespace

Attempts::Attempts(PeerTroubles& troubles, std::string peer, const Clock& clock,
                   const RdmaSettings& settings)
    : troubles_(troubles), peer_(std::move(peer)), clock_(clock), settings_(settings) {}

std::uint64_t Attempts::failovers() const noexcept {
  const PeerTrouble* trouble = troubles_.find(peer_);
  return trouble == nullptr ? 0 : trouble->failovers;
}

bool Attempts::must_wait(Choice choice) const {
  if (choice == Choice::required) return false;
  const PeerTrouble* trouble = troubles_.find(peer_);
  return trouble != nullptr && clock_.now_ns() < trouble->retry_at_ns;
}

bool Attempts::may_take_offer() {
  const std::uint64_t now = clock_.now_ns();
  if (now < next_offer_ns_) return false;
  next_offer_ns_ = now + std::min(settings_.setup_timeout_ns, settings_.retry_ns / 2);
  return true;
}

bool Attempts::has_worked() const {
  return opened_ns_ != 0 && clock_.now_ns() >= opened_ns_ + settings_.retry_ns;
}

void Attempts::note_failure(const std::string& why, Fault fault) {
  PeerTrouble& trouble = troubles_.of(peer_);
  const std::uint64_t now = clock_.now_ns();
  // One that has worked for a while is no path that never works.
  if (has_worked()) trouble.failures = 0;
  trouble.text = why;
  // Connections to one peer fail together, which is one failure.
  if (now >= trouble.retry_at_ns) {
    const std::uint32_t doublings = fault == Fault::path ? trouble.failures++ : 0;
    trouble.retry_at_ns = now + (settings_.retry_ns << std::min(doublings, kMaxDoublings));
  }
  wait();
}

void Attempts::note_abandoned(const std::string& why) {
  PeerTrouble& trouble = troubles_.of(peer_);
  if (++trouble.abandoned < kMostAbandoned) return;
  trouble.abandoned = 0;
  note_failure(why + " (so ended " + std::to_string(kMostAbandoned) + " set-ups in a row)",
               Fault::ours);
}

bool Attempts::may_await_end() const {
  const PeerTrouble* trouble = troubles_.find(peer_);
  return trouble == nullptr || clock_.now_ns() >= trouble->unheard_until_ns;
}

void Attempts::note_unheard_end() {
  troubles_.of(peer_).unheard_until_ns = clock_.now_ns() + settings_.retry_ns;
}

void Attempts::note_decline(Fault of_peer) {
  const std::uint32_t doublings = of_peer == Fault::path ? std::min(declines_++, kMaxDoublings) : 0;
  retry_at_ns_ = clock_.now_ns() + (settings_.retry_ns << doublings);
}

void Attempts::note_opened() {
  opened_ns_ = clock_.now_ns();
  retry_at_ns_ = 0;
  declines_ = 0;
  PeerTrouble& trouble = troubles_.of(peer_);
  trouble.abandoned = 0;
  // Another connection may have failed just now, and waits.
  if (opened_ns_ >= trouble.retry_at_ns) trouble.text.clear();
}

void Attempts::note_good_end() {
  if (has_worked()) troubles_.of(peer_).failures = 0;
}

}  // namespace tern::rdma
