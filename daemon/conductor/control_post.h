#pragma once

#include <cstddef>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/time_slice.h"
#include "collective/slots.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/control_links.h"

namespace tern::daemon {

// Carries control messages to coordinators and members, wherever they are. What this daemon says to
// itself waits in an inbox, so that no part is called back while it handles a message. What it says
// to others goes to as many links in a turn as a group has nodes. The rest waits in an outbox, for
// a thousand ranks may be told or refused at once. No message of others is to be read while the
// outbox is not empty, so that what they say does not fill it. Who has news for many at once, of a
// lost link or of what is late, begins while the outbox has room. The inbox has no bound: what a
// daemon says to itself is no more than what its own clients and groups bring about.
class ControlPost final : public ControlSender {
 public:
  // REQUIRES: the links outlive this.
  ControlPost(ControlLinks& links, wire::NodeId self) : links_(links), self_(self) {}

  // Who this daemon is to others.
  const wire::NodeId& self() const { return self_; }

  void send_to_all(std::vector<LinkRef> to, nlohmann::json message) override;
  std::string source_of(LinkRef link) const override { return links_.source_of(link); }

  // The link to the coordinator at this address.
  LinkRef open(const net::Endpoint& coordinator) { return links_.open(coordinator); }
  // Whether a message sent now arrives, as far as is known.
  bool reaches(LinkRef link) const { return link == kSelf || links_.is_open(link); }

  bool has_mail() const { return !inbox_.empty(); }
  // The oldest message from this daemon to itself. REQUIRES: has_mail().
  nlohmann::json take();
  // Gives `read` one message from this daemon to itself, and others until the slice is over. Returns
  // how many.
  template <typename Read>
  int deliver(const TimeSlice& slice, const Read& read) {
    int delivered = 0;
    while (delivered < kMostAtOnce && has_mail()) {
      read(take());
      ++delivered;
      if (slice.is_over()) break;
    }
    return delivered;
  }

  bool has_letters() const { return !outbox_.empty(); }
  bool has_room() const { return outbox_.size() < kMostLetters; }
  // Once in a turn. Sends the oldest message to one link, and others until the slice is over. Returns
  // how many.
  int dispatch(const TimeSlice& slice);

 private:
  static constexpr int kMostAtOnce = 256;
  static constexpr std::size_t kMostLetters = 256;
  static constexpr int kSentAtOnce = static_cast<int>(collective::kMaxNodes);

  // A message for other daemons, which is written once.
  struct Letter {
    std::vector<LinkRef> to;
    nlohmann::json message;
    std::string text = {};  // empty: not written yet
    std::size_t sent = 0;   // to so many
  };

  // REQUIRES: has_letters().
  void send_next();

  ControlLinks& links_;
  wire::NodeId self_;
  std::deque<nlohmann::json> inbox_;
  std::deque<Letter> outbox_;
  int at_once_ = kSentAtOnce;  // left of the turn
};

}  // namespace tern::daemon
