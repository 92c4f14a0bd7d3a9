#pragma once

// Sends and recvs of one group on one lane: which recv a send meets, and who must be told what.
// Pure: events in, steps out. The elements themselves are the lane's.
//
// The words. A *pass* is a send or a recv that a rank of this node has submitted. A node *offers*
// the sends of its ranks to the nodes of their receivers; an offer waits there until it *meets* a
// recv. All this happens on the one lane that is the destination's and the tag's
// (shm::lane_of_tag). An offer meets the first recv of its destination and tag that is for its
// source or for any; a recv meets the first such offer that has come. Offers come in the order in
// which a rank has submitted its sends, so that the two meet in that order.
//
//   sender's node                       receiver's node
//     send_offer (eager: + elements) -->  waits for a recv, then meets it
//     <---------------- send_accept       (not eager) the elements have a place
//     send_piece, send_piece ... ------>  straight into the recv's memory
//     <------------------- send_end       delivered, or why not
//
// - Every offer ends with the receiver's send_end, the last frame that names it. The sender's slot
//   is its number, so a number is used anew only after that. Nothing ends by itself on one side.
// - The sender gives up (cancel, op_timeout, a lost page) with send_withdraw: it sends no further
//   piece and waits for send_end all the same. A send_end that says "delivered" has been faster,
//   and counts.
// - The receiver gives up (a recv too small, of another type, cancelled) with send_end. Pieces and
//   a withdrawal that were under way then name nothing, and are ignored.
// - Who promises and does not keep it has a deadline: what has met its other side and stands still
//   for op_timeout fails as what has met nobody, and a node that owes its last word on what has
//   ended here loses its link.
// - A rank that leaves has its node say so to all others (rank_left), where a recv from it would
//   wait in vain.
// - A send and its recv on one node go the same way without frames; pieces are copied.
// - The elements of a send may come while it is under way. A piece is sent when all of it is there,
//   so that pieces are cut alike whatever the time.
// - Where a send says that it may lose values, each of its pieces is a block. A recv that has not
//   said that it takes such ones fails with it, however they would have travelled. Blocks are made
//   and read in a time of their own: a send's next piece waits until its last one is made, and a
//   recv's next block may come before its last one is read.
//
// Bounds. A rank has kMaxPassing passes in flight, so a node offers at most as many times its
// ranks, and numbers lie below that: another number, or one in use, breaks the protocol. Of each
// node at most kEagerReserve offers with elements wait here; a sender counts its own that have not
// ended, and offers what exceeds them without elements. What is accepted has its place in the
// recv's memory, so pieces need no memory here and always arrive.

#include <cstdint>
#include <string_view>
#include <vector>

#include "collective/group_shape.h"
#include "collective/passing.h"
#include "collective/slot_queues.h"
#include "collective/slot_table.h"

namespace tern::collective {

class Mailbox {
 public:
  // Offers of one node that may wait here with their elements.
  static constexpr std::uint32_t kEagerReserve = 32;
  // A node answers a withdrawal as soon as it has it, and a frame comes as fast as the network is.
  static constexpr std::uint64_t kLastWordNs = 60'000'000'000;

  // `shape` outlives this.
  explicit Mailbox(const GroupShape& shape);

  // ---- From ranks of this node ----
  // kNoSlot: the rank has kMaxPassing in flight. REQUIRES: ranks of the group; it has not ended.
  PassId submit(const Passing& passing);
  // Of a send that was arriving: so many bytes of its elements may be read now.
  void arrived(PassId send, std::uint64_t bytes);
  void fail(PassId pass, const Failure& failure);
  // What has the rank for its other side ends now, and what is submitted or offered later at once.
  void rank_left(std::uint32_t rank);

  // ---- From other nodes. False: the node breaks the protocol ----
  struct Arriving {
    std::uint32_t node = 0;
    PassId number = 0;
    Envelope envelope;
    bool eager = false;
    bool damaged = false;          // type, count and elements are not to be believed
    std::uint32_t slab = kNoSlot;  // where the lane keeps the elements; given back with `close`
  };
  bool on_offer(const Arriving& arriving);
  bool on_accept(std::uint32_t node, std::uint64_t number);
  bool on_end(std::uint32_t node, std::uint64_t number, const Failure& failure);
  bool on_withdraw(std::uint32_t node, std::uint64_t number, const Failure& failure);
  bool on_rank_left(std::uint32_t node, std::uint64_t rank);
  // A piece is about to come: it goes to the memory of `pass`, which stays until on_piece().
  // kNoSlot: nobody waits for it any more.
  struct Place {
    PassId pass = kNoSlot;
    OfferId offer = kNoSlot;
    std::uint64_t offset = 0;
    // The piece is a block of so many bytes of elements at most; 0: it is elements.
    std::uint64_t block_of = 0;
  };
  bool expect_piece(std::uint32_t node, std::uint64_t number, std::uint64_t bytes, Place& place);
  enum class Piece : std::uint8_t { whole, damaged, abandoned };
  // A block has come whole, and so many bytes of elements are in it; on_piece() follows when they
  // lie in the recv's memory. REQUIRES: not more than the place says.
  void landed(const Place& place, std::uint64_t bytes);
  // `bytes`: of elements, as many as have landed where that was said.
  void on_piece(const Place& place, std::uint64_t bytes, Piece how);

  // ---- Steps. Each is carried out and then done, or its pass failed in place of that ----
  // `pieces`: how many frames may still be sent now.
  PassStep next(std::uint32_t pieces);
  void done(const PassStep& step);
  void piece_freed(PassId send);  // the memory of one piece, which has arrived or never will

  // ---- Time and ends ----
  // Called now and then, after the end too. Fails what has waited for its other side, or has met it
  // and stood still, for so long (0: for ever). Answers which node has owed its last word on a pass,
  // or the end of a frame that uses a pass's memory, for kLastWordNs: no pass that it has a part in
  // can be relied on to end, and its link must. kNoSlot: none.
  std::uint32_t expire(std::uint64_t now_ns, std::uint64_t timeout_ns);
  void end(Errc code, std::string_view text);

  const Pass& pass(PassId id) const noexcept { return passes_[id]; }
  bool in_use(PassId id) const noexcept { return passes_.in_use(id); }
  std::uint32_t slots() const noexcept { return passes_.size(); }
  std::uint32_t in_flight() const noexcept { return passes_.used(); }
  bool idle() const noexcept { return passes_.used() + offers_.used() == 0; }
  std::uint64_t completed() const noexcept { return completed_; }

  // What the lane must know of an offer.
  struct Known {
    std::uint32_t node = 0;
    PassId number = 0;
    Envelope envelope;
    std::uint32_t slab = kNoSlot;
  };
  Known offer(OfferId id) const noexcept;
  // How an offer that is being closed has ended.
  PassOutcome outcome_of(OfferId id) const noexcept;

 private:
  enum class OfferState : std::uint8_t { waiting, to_accept, coming, to_deliver, copying, closing };
  struct Offer {
    OfferState state = OfferState::waiting;
    bool eager = false;
    bool damaged = false;
    std::uint32_t node = 0;
    PassId number = 0;
    Envelope envelope;
    std::uint32_t slab = kNoSlot;
    PassId recv = kNoSlot;     // that it has met
    std::uint64_t moved = 0;   // bytes that lie in the recv's memory
    std::uint64_t landed = 0;  // bytes whose frames have come
    Errc code = Errc::ok;      // why it ends, where it has met none
  };

  // Queues of passes.
  static constexpr std::uint32_t kReady = 0, kSending = 1;

  static std::uint32_t bucket_of(std::uint32_t destination, std::uint32_t tag) noexcept;
  bool is_here(std::uint32_t rank) const noexcept { return node_of_[rank] == shape_.node; }
  OfferId find(std::uint32_t node, std::uint64_t number) const noexcept;
  // A send of this node that has been offered to `node`.
  bool is_offered(std::uint32_t node, std::uint64_t number) const noexcept;
  // The piece's recv still waits for it.
  bool is_coming(const Place& place) const noexcept;

  void add_offer(const Arriving& arriving);
  void meet(OfferId offer, PassId recv);
  void close(OfferId offer, const Failure& failure);
  void end_pass(PassId pass, const Failure& failure);
  void settle(PassId pass);
  void end_send(PassId pass, const Failure& failure);
  void drop_offer(OfferId offer);
  void fail_send(PassId send, const Failure& failure);
  void fail_of_gone(PassId pass, std::uint32_t rank);
  void expire_one(PassId pass, std::uint64_t now_ns, std::uint64_t timeout_ns);
  // Whether the next piece of a send, of which so much has moved, may be read.
  bool has_piece(const Pass& send, std::uint64_t moved) const noexcept;
  PassStep offer_step();
  PassStep pass_step();
  PassStep piece_step();

  const GroupShape& shape_;
  std::uint64_t piece_bytes_;
  std::vector<std::uint32_t> node_of_;       // by rank
  std::vector<bool> gone_;                   // by rank: it has left
  std::vector<std::uint32_t> passing_;       // in flight, by local rank
  std::vector<std::uint32_t> eager_out_;     // offers with elements that have not ended, by node
  std::vector<std::vector<OfferId>> named_;  // by node and number
  SlotTable<Pass> passes_;
  SlotTable<Offer> offers_;
  SlotQueues recvs_;         // that wait, by bucket
  SlotQueues waiting_;       // offers, by bucket
  SlotQueues ready_passes_;  // kReady, kSending
  SlotQueues ready_offers_;
  std::uint32_t turn_ = 0;
  std::uint64_t completed_ = 0;
  bool ended_ = false;
};

}  // namespace tern::collective
