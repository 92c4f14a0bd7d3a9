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
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "daemon/lane/idle_pages.h"
#include "daemon/lane/job_sharing.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_groups.h"
#include "daemon/lane/lane_links.h"
#include "daemon/lane/lane_resources.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/state_move_queue.h"
#include "daemon/service/turn_meter.h"
#include "net/event_loop.h"
#include "net/transport.h"

namespace tern::daemon {

class Lane final : private FrameSink, private EntrySink {
 public:
  using PeerSnapshot = daemon::PeerSnapshot;

  // REQUIRES: all that is given outlives the lane. `loop` watches the clients' eventfds, and may be
  // null where somebody steps the lane; wake_conductor is called after events have been reported.
  Lane(const LaneSettings& settings, const LaneClients::Surroundings& surroundings,
       wire::NodeId self, std::function<void()> wake_conductor = {});
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // ---- Before it runs. What is given outlives the lane. ----
  // Where samples of tensors go. Without it the tuner learns nothing new.
  void set_shadow(Shadow* shadow) { resources_.shadow = shadow; }
  // Who encodes and decodes. Without it this processor does, at once.
  void set_executor(BlockExecutor& executor) { resources_.executor = &executor; }
  // Where the lane counts: memory that others read after the daemon's death too.
  void count_in(LaneCounters& counters, std::span<std::uint64_t> kinds);
  // What all lanes of the node know together.
  void share(ActiveJobs& jobs) { sharing_.share(jobs); }

  struct Round {
    int work = 0;
    std::uint64_t ended_ns = 0;
  };
  // Begins now: who goes round and round knows when the last round has ended.
  Round do_work(std::uint64_t begin_ns);
  // Between prepare_sleep() and end_sleep() clients and the conductor wake the lane's event loop.
  // False: there is work already, do not sleep.
  bool prepare_sleep();
  void end_sleep() { resources_.clients.end_sleep(); }
  // Until when it may sleep.
  std::uint64_t next_deadline_ns() const;

  // ---- Thread: the conductor's; rings have one end there ----
  CommandRing& commands() { return *commands_; }
  EventRing& events() { return resources_.reports.ring(); }
  const LaneCounters& counters() const { return *resources_.counters; }
  const KindCounters& kinds() const { return resources_.kinds; }
  TraceRing& trace() { return resources_.trace; }
  const LaneSettings& settings() const { return resources_.settings; }
  // How long each do_work() took.
  TurnMeter& turns() { return turns_; }
  // The state of the links in the last tenth of a second.
  std::vector<PeerSnapshot> peers() const { return links_.peers(); }

  // ---- For tests that step the lane ----
  std::size_t client_count() const { return resources_.clients.size(); }
  FrameMemory& memory() { return resources_.memory; }

 private:
  bool place_frame(LanePeer& peer, const wire::FrameHeader& header,
                   net::PayloadPlace& place) override;
  bool take_frame(LanePeer& peer, const wire::FrameHeader& header, const ReceivedPayload& payload,
                  bool& known) override;
  void abandon_frame(LanePeer& peer) override;
  void on_link_lost(LanePeer& peer, Errc reason, const char* text, bool superseded) override;
  void on_entry(LaneClient& client, const shm::SubmitEntry& entry) override;

  int run_commands(std::size_t most);
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

  int drain_clients();
  int run_groups(std::uint64_t now_ns);
  int settle(std::uint64_t now_ns);  // clients, groups, links and ranks that can be let go
  int settle_groups(std::uint64_t now_ns, bool timer);
  void publish_gauges();
  void drop_idle_pages(std::uint64_t now_ns);

  net::Transport& transport_;
  std::function<void()> wake_conductor_;
  // On the heap: a few hundred kilobytes.
  std::unique_ptr<CommandRing> commands_ = make_resident_ring<CommandRing>();
  LaneResources resources_;
  LaneLinks links_;
  JobSharing sharing_;
  LaneGroups groups_;
  StateMoveQueue state_moves_{resources_.clock, resources_.clients, resources_.reports};
  std::size_t first_client_ = 0;  // whose entries come first
  std::uint64_t next_timer_ns_ = 0;
  bool is_at_rest_ = false;  // nothing has been done since the gauges were published
  IdlePages idle_pages_;
  std::optional<LaneGroups::Dropped> dropped_;  // of groups, once the lane's own pages are
  TurnMeter turns_;
};

}  // namespace tern::daemon
