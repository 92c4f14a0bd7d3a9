#pragma once

// One group on one lane: the life of its ops, from an entry to its completion. What happens to an
// op's values on the way is its legs' part. Made by the conductor, used by the lane between
// AddGroup and GroupRemoved.

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/lane/announcements.h"
#include "daemon/lane/block_codec.h"
#include "daemon/lane/block_path.h"
#include "daemon/lane/copy_watch.h"
#include "daemon/lane/eager_room.h"
#include "daemon/lane/group_clients.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/group_news.h"
#include "daemon/lane/link_rates.h"
#include "daemon/lane/op_admission.h"
#include "daemon/lane/op_gauges.h"
#include "daemon/lane/op_ledger.h"
#include "daemon/lane/op_tuning.h"
#include "daemon/lane/point_to_point.h"
#include "daemon/lane/reduce_leg.h"
#include "daemon/lane/releases.h"
#include "daemon/lane/result_leg.h"
#include "daemon/lane/state_upkeep.h"
#include "daemon/lane/verifier.h"

namespace tern::daemon {

class LaneGroup final : private MemoryOwner, private BlockSink {
 public:
  LaneGroup(GroupSetup setup, EagerRoom room);
  LaneGroup(const LaneGroup&) = delete;
  LaneGroup& operator=(const LaneGroup&) = delete;

  // ---- Called by the lane ----
  void attach(LaneResources& resources, PeerSource& peers, LaneJob& job);
  GroupCore& core() noexcept { return core_; }
  void submit(LaneClient& client, const shm::SubmitEntry& entry);
  // At most `budget` of them, as far as the lane's turn and the job's share of the lane's memory
  // allow, which is one of so many jobs. Returns how many there were; some steps of sends and recvs
  // count as one.
  int run_actions(int budget, const LaneLoad& load, std::size_t jobs);
  // True: inputs have come, so there may be actions.
  bool on_timer(std::uint64_t now_ns);
  int settle();  // lets ranks leave, reports what nobody uses any more
  // A client has copied more of an input: there may be work.
  bool inputs_move() {
    const bool passes_move = point_to_point_.inputs_move();
    return copies_.look() || passes_move;
  }

  bool place_payload(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  // A frame of the node's that has come whole. False: the peer has broken the protocol.
  bool on_frame(std::uint32_t node, const wire::FrameHeader& header,
                const net::PayloadPlace& place);
  void on_bad_payload(std::uint32_t node, const wire::FrameHeader& header);
  void on_abandoned(LanePeer& peer);

  void end(Errc code, const char* text);
  void fail_key(const collective::OpKey& key, const collective::Failure& failure);
  void add_tensor(TensorState* tensor);
  // Reported when the last op that uses it has ended.
  void drop_tensor(TensorState* tensor, std::uint32_t release);
  // The rank leaves once the entries are taken that it has published by now.
  void let_leave(std::uint32_t local_rank);
  // The node's link was replaced. False: in this epoch something was said on it, and is lost.
  bool renew_untouched(std::uint32_t node);
  bool move_state(const StateMove& move, StateUpkeep::MoveProgress& progress,
                  event::StateMoved& outcome) {
    return upkeep_.move_some(move, progress, outcome);
  }
  bool is_live() const;  // something is in flight, or waits for its other side
  bool idle() const;     // nothing refers to it any more
  bool uses_client(const LaneClient& client) const;
  void forget(const LaneClient& client);

  // For the lane to drop its pages, and for whoever frees the group when the lane has let go of it.
  EagerRoom& room() noexcept { return room_; }

  // ---- Thread: any ----
  const GroupSetup& setup() const noexcept { return core_.setup(); }
  const OpGauges& gauges() const noexcept { return gauges_; }
  const LinkRates& rates() const noexcept { return rates_; }

  GroupNews& news() noexcept { return news_; }

 private:
  void frame_acked(collective::OpId op) override;
  void on_block(const BlockRequest& request, const BlockCompletion& completion) override;

  struct Leaving {
    std::uint32_t local_rank = 0;
    std::uint64_t entries_end = 0;  // LaneClient::taken
  };

  // Submission.
  void begin(collective::OpId op, const OpAdmission::Admitted& admitted);
  void cancel(const LaneClient& client, const shm::SubmitEntry& entry);

  // Actions.
  void carry_out(const collective::Action& action);
  void fail_for_block(const BlockRequest& request, const char* problem);
  void work_slice();
  void send_failure(const collective::Action& action);
  void complete(collective::OpId op);
  void finalize(collective::OpId op);
  void tell_end(collective::OpId op);

  struct FrameHandler;
  void give_up_op(std::uint32_t node, const wire::FrameHeader& header);
  // Frames that belong to no part: what they say.
  bool accept_op_fail(const wire::FrameHeader& header, const net::PayloadPlace& place);
  bool accept_verify(std::uint32_t node, const wire::FrameHeader& header,
                     const net::PayloadPlace& place);
  bool accept_submitted(std::uint32_t node, const wire::FrameHeader& header,
                        const net::PayloadPlace& place);

  EagerRoom room_;
  GroupCore core_;
  OpAdmission admission_;
  CopyWatch copies_;
  GroupClients clients_;
  Announcements announcements_;
  BlockCodec codec_;
  BlockPath path_;
  OpTuning tuning_;
  ReduceLeg reduce_;
  ResultLeg results_;
  Verifier verifier_;
  StateUpkeep upkeep_;
  OpLedger ledger_;
  LinkRates rates_;
  OpGauges gauges_;
  PointToPoint point_to_point_;
  Releases releases_;
  std::vector<Leaving> leaving_;
  GroupNews news_;
  bool passes_first_ = false;  // in this round
  bool op_seen_ = false;       // from here or from another node
};

}  // namespace tern::daemon
