#pragma once

// Sends and recvs of one group on one lane: entries, frames and memory of what collective::Mailbox
// decides. Elements travel as they are, from the sender's memory into the receiver's, or as blocks
// where the send writes out a recipe. What comes before its recv waits in a pool of its own for
// each node, of the group's EagerRoom.

#include <cstdint>
#include <span>

#include "collective/mailbox.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/pass_copies.h"
#include "daemon/lane/pass_memories.h"
#include "daemon/lane/pass_peers.h"
#include "daemon/lane/pass_pieces.h"
#include "daemon/lane/slab_pool.h"
#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::daemon {

class PointToPoint {
 public:
  // Everything given outlives this. Events name the group by `group`.
  PointToPoint(GroupCore& core, LaneGroup& group, std::span<SlabPool> pools);
  // Before the first entry and frame.
  void attach(LaneResources& resources) { pieces_.attach(resources); }

  const collective::Mailbox& mailbox() const noexcept { return mailbox_; }

  // ---- Entries ----
  struct Submitter {
    LaneClient& client;
    std::uint32_t local_rank = 0;
    const plan::Plan& plan;
    const OpEncoding* encoding = nullptr;
    bool asks_for_loss =
        false;  // it has written out a recipe for that, however few elements it has
  };
  // REQUIRES: check_entry() has no problem with it, and the epoch has not ended.
  void submit(const Submitter& submitter, const shm::SubmitEntry& entry);
  // Nothing happens if the ticket is none of its client's here.
  void cancel(const LaneClient& client, std::uint64_t ticket, const collective::Failure& why);

  // Of one step a piece is read or copied at most: a chunk of an op takes as long as some of them.
  static constexpr int kStepsPerAction = 4;
  // At most `most` steps, as far as the lane's turn allows; room() says how many frames may still be
  // sent now. Returns how many steps there were.
  template <typename Room>
  int run(int most, Room room) {
    peers_.tell_departures();
    copies_.look();
    int done = 0;
    while (done < most && !mailbox_.idle() && core_.resources().codec.spent.leaves_time()) {
      const collective::PassStep step = mailbox_.next(room());
      if (step.action == collective::PassAction::none) break;
      carry_out(step);
      ++done;
    }
    return done;
  }

  // ---- Frames, as of LaneGroup ----
  bool place_payload(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  bool on_frame(std::uint32_t node, const wire::FrameHeader& header,
                const net::PayloadPlace& place);
  void on_bad_payload(std::uint32_t node, const wire::FrameHeader& header);
  void on_abandoned(std::uint32_t node, const filling::OfferSlab& filled);
  void on_abandoned(std::uint32_t node, const filling::Piece& piece) {
    pieces_.abandoned(node, piece);
  }

  // ---- Time and ends ----
  // A client has copied more of what it sends: there may be work.
  bool inputs_move() { return copies_.look(); }
  // True: as inputs_move().
  bool expire(std::uint64_t now_ns);
  void rank_left(std::uint32_t local_rank);
  // The link to the node is about to be replaced.
  void before_renewal(std::uint32_t node) { peers_.before_renewal(node); }
  void end(Errc code, const char* text) { mailbox_.end(code, text); }
  bool uses_rank(std::uint32_t local_rank) const noexcept;

 private:
  void carry_out(const collective::PassStep& step);
  void dispatch(const collective::PassStep& step);
  void offer(const collective::PassStep& step);
  void withdraw(const collective::PassStep& step);
  void accept(const collective::PassStep& step);
  void deliver(const collective::PassStep& step);
  void copy(const collective::PassStep& step);
  void close(const collective::PassStep& step);
  void complete(const collective::PassStep& step);

  struct FrameHandler;
  bool place_offer(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  bool accept_offer(std::uint32_t node, const wire::FrameHeader& header,
                    const net::PayloadPlace& place, bool damaged);
  void tell(std::uint32_t node, const wire::FrameHeader& header,
            const collective::PassOutcome& outcome);

  GroupCore& core_;
  collective::Mailbox mailbox_;
  PassPeers peers_;
  PassMemories memories_;
  PassCopies copies_;
  PassPieces pieces_;
  LaneGroup& group_;
  std::span<SlabPool> pools_;  // of offers' elements, by node
};

}  // namespace tern::daemon
