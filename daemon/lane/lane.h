#pragma once

// A lane: one thread's share of everything. It owns its links, slabs, op slots and codec scratch,
// and takes entries from its ring of every client. do_work() does a bounded amount and says how
// much, so the same code runs on a thread of its own or stepped by a test.
//
// No lock, log, exception or allocation of our own after warm-up in here (groups, clients and links
// that come and go are warm-up).

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bump.h"
#include "base/check.h"
#include "base/clock.h"
#include "codec/workspace.h"
#include "collective/group_ops.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_job.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/lane_share.h"
#include "daemon/lane/slab_pool.h"
#include "daemon/lane/snapshot_table.h"
#include "daemon/lane/trace_ring.h"
#include "net/event_loop.h"
#include "net/link.h"
#include "net/transport.h"

namespace tern::daemon {

class LaneGroup;
class Shadow;

struct LaneClient {
  ClientMemory* memory = nullptr;
  // What the transport was told of; the conductor may have unmapped it when the lane ends.
  std::span<const std::byte> arena;
  shm::RingConsumer<shm::SubmitEntry> submissions;
  shm::RingProducer<shm::CompletionEntry> completions;
  std::uint64_t watch = 0;
  std::uint64_t taken = 0;           // entries
  std::uint64_t before_move = 0;     // so many entries are older than the state moves that wait
  std::uint32_t uses = 0;            // (op, rank) pairs that refer to its memory
  std::uint64_t refusal_due_ns = 0;  // when the conductor may hear of another refused entry
  bool dropping = false;             // it is gone: nothing is written to its rings
  bool drop_requested = false;       // by the conductor
  bool rang = false;                 // has completions that the doorbell does not know
};

// What a link is filling at the moment.
struct Receiving {
  LaneGroup* group = nullptr;
  collective::OpId pinned_op = collective::kNoSlot;
  std::uint32_t receive_slab = SlabPool::kNone;
  bool orphaned = false;  // the slab's chunk has ended: give it back afterwards
  SlabPool* eager_pool = nullptr;
  std::uint32_t eager_slab = SlabPool::kNone;
  collective::ChunkId chunk = collective::kNoSlot;
  collective::OpId op = collective::kNoSlot;
  bool refused = false;  // the header broke the protocol; the link ends with the frame
};

// The link of one group, over all its epochs, to one of its nodes: jobs that shared a link would
// wait for each other's frames.
struct LanePeer {
  wire::NodeId id;
  std::uint64_t group = 0;  // GroupSetup::link
  std::unique_ptr<net::Link> link;
  std::uint32_t groups = 0;     // epochs that use it
  std::uint64_t unused_ns = 0;  // since when none does
  Receiving receiving;
  std::vector<std::byte> small;   // payloads of frames that carry no block
  std::vector<std::byte> result;  // a block of the broadcast leg, decoded as soon as it is complete
  // For the comparison of its speed with ours: what it was sent and has added of us, what we have
  // added of it, in bytes of elements; and the same as of the last look.
  struct Work {
    std::uint64_t sent_bytes = 0, peer_ns = 0;
    std::uint64_t added_bytes = 0, added_ns = 0;
  };
  Work work, work_seen;
  // The link's count of bytes at the last look at its rate, and when that was.
  std::uint64_t rate_bytes = 0, rate_ns = 0;
  std::uint64_t round_trip_ns = 0;  // as of the last look at what links share
  std::string told_carrier;         // what the log has said of it
  bool lost = false;
  bool served = false;    // epochs have used it
  bool reported = false;  // to speak of groups that are not known, though none has used it
  bool stranger = false;  // it connected without being expected, and where it listens is unknown
  Errc lost_code = Errc::ok;
  char lost_text[120] = {};
};

// A frame in flight that borrows memory, until all its receivers have acknowledged it.
struct FrameToken {
  enum class Leg : std::uint8_t { none, contribution, result };
  Leg leg = Leg::none;
  std::uint32_t unacked = 0;
  LaneJob* job = nullptr;
  LaneGroup* group = nullptr;
  collective::OpId op = collective::kNoSlot;  // pinned, if set
  SlabPool* pool = nullptr;
  std::uint32_t slab = SlabPool::kNone;
};

class Lane final : private net::LinkSink {
 public:
  // REQUIRES: all that is given outlives the lane. `loop` watches the clients' eventfds, and may be
  // null where somebody steps the lane; wake_conductor is called after events have been reported.
  Lane(const LaneSettings& settings, const Clock& clock, net::Transport& transport,
       wire::NodeId self, net::EventLoop* loop = nullptr,
       std::function<void()> wake_conductor = {});
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  int do_work();
  // Where samples of tensors go; before the lane runs. Without it the tuner learns nothing new.
  void set_shadow(Shadow* shadow) { shadow_ = shadow; }
  // Where the lane counts, before it runs: memory that others read after the daemon's death too. It
  // outlives the lane.
  void count_in(LaneCounters& counters) { counters_ = &counters; }
  // What all lanes of the node know together, before they run; it outlives them.
  void share(ActiveJobs& jobs) { active_jobs_ = &jobs; }

  // Between prepare_sleep() and end_sleep() clients and the conductor wake the lane's event loop.
  // False: there is work already, do not sleep.
  bool prepare_sleep();
  void end_sleep();
  // Until when it may sleep.
  std::uint64_t next_deadline_ns() const;

  CommandRing& commands() { return *commands_; }
  EventRing& events() { return *events_; }
  const LaneCounters& counters() const { return *counters_; }
  TraceRing& trace() { return trace_; }
  const LaneSettings& settings() const { return settings_; }

  struct PeerSnapshot {
    wire::NodeId id;
    std::uint64_t group = 0;  // GroupSetup::link
    net::LinkState state{};
    std::uint8_t reserved[7] = {};
    net::LinkStats stats;
    std::uint64_t unacked_frames = 0;
    std::uint64_t failovers = 0;
    char carrier[16] = {};  // what frames travel on, and why not on another carrier
    char carrier_note[232] = {};
  };
  // From any thread: the state of the links as of the last tenth of a second.
  std::vector<PeerSnapshot> peers() const;

  // ---- For LaneGroup ----
  const Clock& clock() const { return clock_; }
  std::size_t client_count() const { return clients_.size(); }
  // A frame with a payload, sent or received: what the tuner knows of a lane's work.
  void count_block(std::size_t bytes) noexcept {
    if (bytes == 0) return;  // a grant
    bump(counters_->block_bytes, std::uint64_t{bytes});
    bump(counters_->blocks, std::uint64_t{1});
  }
  LaneCounters& mutable_counters() { return *counters_; }
  LanePeer& peer(const wire::NodeId& id, std::uint64_t group, const net::Endpoint& endpoint);
  LaneJob& job(std::uint64_t key);
  LaneClient* client(std::uint64_t id);
  void tell(LaneClient& client, std::uint64_t ticket, Errc code, const char* text,
            std::uint64_t bytes_sent);
  // Tells the client, counts, and says it to the conductor's log.
  void refuse(LaneClient& client, std::uint64_t ticket, Errc code, const char* text);
  // Wakes the conductor at the end of the round.
  template <typename What>
  void report(const What& what) {
    push(what);
    reported_ = true;
  }
  void record(const event::OpEnded& ended);
  // 0 if none is free. The returned cookie is given to Link::send for each of `receivers` sends.
  std::uint64_t make_token(LaneJob& job, FrameToken::Leg leg, std::uint32_t receivers,
                           LaneGroup* group, collective::OpId op, SlabPool* pool,
                           std::uint32_t slab);
  // Link::send for frames that borrow memory: on a lost link the token is given back at once.
  void send(LanePeer& peer, const wire::FrameHeader& header, std::span<const std::byte> prefix,
            std::span<const std::byte> body, std::uint64_t cookie);
  collective::Room room() const;  // what nobody holds
  // What a job may take now, of a group with so many nodes.
  collective::Room room(const LaneJob& job, std::uint32_t nodes) const;
  SlabPool& accumulators() { return accumulators_; }
  SlabPool& receive_slabs() { return receive_slabs_; }
  SlabPool& send_slabs() { return send_slabs_; }
  SlabPool& result_slabs() { return result_slabs_; }
  codec::Workspace& codec_workspace() { return codec_workspace_; }
  std::span<std::byte> scratch(std::uint32_t index) { return scratch_.slab(index); }
  Shadow* shadow() { return shadow_; }

 private:
  net::PayloadPlace place_payload(net::Link& link, const wire::FrameHeader& header) override;
  bool on_frame(net::Link& link, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override;
  void on_abandoned(net::Link& link, const wire::FrameHeader& header,
                    const net::PayloadPlace& place) override;
  void on_acked(net::Link& link, std::uint64_t cookie) override;
  void on_lost(net::Link& link, Errc reason, const char* text) override;
  void on_breach(net::Link& link, const char* text) override;

  int run_commands();
  void run_command(const Command& command);
  void run(const command::AddClient& add);
  void run(const command::DropClient& drop);
  void run(const command::AddGroup& add);
  void run(const command::EndGroup& end);
  void run(const command::RankLeft& left);
  void run(const command::RemoveGroup& remove);
  void run(const command::SetWeight& set);
  void run(const command::AddTensor& add);
  void run(const command::DropTensor& drop);
  void run(const command::AdoptConnection& adopt);
  void run(const command::FailOp& fail);
  void run(const command::MoveState& move);
  void run(const command::Goodbye& goodbye);
  void adopt(const command::AdoptConnection& command);
  template <typename What>
  void push(const What& what) {
    // do_work keeps a reserve of the ring free.
    TERN_CHECK(events_->push(Event{static_cast<std::uint16_t>(settings_.lane), what}));
  }
  bool has_room_for_log() const;
  // Left out while the conductor is behind: the counters have it.
  template <typename What>
  bool report_for_log(const What& what) {
    if (!has_room_for_log()) return false;
    report(what);
    return true;
  }
  bool is_urgent(const event::OpEnded& ended);
  void report_peer(const wire::NodeId& peer, const char* text);
  void tell_carrier(LanePeer& peer, const net::Carriage& carriage);
  std::vector<std::pair<wire::NodeId, std::string>>
      told_carriers_;  // the last line about each node
  int drain_clients();
  bool take_entry(LaneClient& client);
  void finish_state_moves(bool at_once);
  int run_groups(std::uint64_t now_ns);
  int settle();  // clients, groups, links and ranks that can be let go
  int settle_links(std::uint64_t now_ns);
  void share_links(std::uint64_t now_ns);
  void ring_doorbells();
  LanePeer* peer_of(net::Link& link);
  LaneGroup* group_of(const wire::FrameHeader& header, const LanePeer& peer, std::uint32_t& node,
                      bool& protocol_ok);
  void acked(std::uint64_t cookie);
  void trace_departure(const LanePeer& peer, const wire::FrameHeader& header, std::uint64_t bytes,
                       std::uint64_t cookie);
  void trace_arrival(TraceEvent& event);
  void publish_peers();
  void publish_gauges();
  void drop_idle_pages(std::uint64_t now_ns);
  void remember_slabs();
  void forget_slabs();

  LaneSettings settings_;
  const Clock& clock_;
  net::Transport& transport_;
  wire::NodeId self_;
  net::EventLoop* loop_;
  std::function<void()> wake_conductor_;
  bool reported_ = false;
  Shadow* shadow_ = nullptr;
  std::uint64_t tuner_woken_ns_ = 0;
  // On the heap: a few hundred kilobytes each.
  std::unique_ptr<CommandRing> commands_ = std::make_unique<CommandRing>();
  std::unique_ptr<EventRing> events_ = std::make_unique<EventRing>();
  LaneCounters own_counters_;
  LaneCounters* counters_ = &own_counters_;
  TraceRing trace_;

  SlabPool accumulators_;   // sums of chunks this node owns; a raw result is sent from there
  SlabPool receive_slabs_;  // contributions of other nodes
  SlabPool send_slabs_;     // encoded contributions
  SlabPool result_slabs_;   // encoded results
  SlabPool scratch_;        // one chunk in f32, two of them
  codec::Workspace codec_workspace_;
  std::vector<FrameToken> tokens_;
  std::vector<std::uint32_t> free_tokens_;
  std::vector<TraceEvent> wire_events_;  // of the tokens; begin_ns 0: not traced
  std::uint32_t contributions_in_flight_ = 0;
  std::uint32_t results_in_flight_ = 0;

  std::vector<std::unique_ptr<LaneClient>> clients_;
  std::vector<command::MoveState> state_moves_;  // that wait until older entries have been taken
  std::vector<LaneGroup*> groups_;
  std::vector<std::unique_ptr<LaneJob>> jobs_;
  LaneLoad load_;
  ActiveJobs own_active_jobs_;
  ActiveJobs* active_jobs_ = &own_active_jobs_;
  LaneShare share_;
  bool links_bound_ = false;
  std::unordered_map<std::uint64_t, LaneGroup*> groups_by_token_;
  std::unordered_map<std::uint64_t, LaneGroup*> groups_by_number_;
  std::vector<std::unique_ptr<LanePeer>> peers_;
  bool superseding_ = false;  // a link ends because its peer has begun another
  std::uint64_t next_timer_ns_ = 0;
  bool pages_touched_ = false;       // since they were dropped
  std::uint64_t drop_pages_ns_ = 0;  // when they will be; 0 while anything is in flight
  static constexpr std::size_t kSnapshots = 512;
  SnapshotTable<PeerSnapshot, kSnapshots> peer_table_;
  std::vector<PeerSnapshot> peer_rows_;  // of the next snapshot; as many as there were links
};

}  // namespace tern::daemon
