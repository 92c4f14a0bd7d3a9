#pragma once

// How the jobs of a lane share it: whose turn is how long, and what their links may leave in the
// kernel while others have something to send.

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/lane/fan_out.h"
#include "daemon/lane/lane_group.h"
#include "daemon/lane/lane_job.h"
#include "daemon/lane/lane_links.h"
#include "daemon/lane/lane_share.h"

namespace tern::daemon {

class JobSharing {
 public:
  // `port_bytes`: what a port of the switch holds; 0: not known.
  explicit JobSharing(std::uint32_t lane, std::size_t port_bytes = 0)
      : lane_(lane), fan_out_(port_bytes) {}

  // What all lanes of the node know together; it outlives this.
  void share(ActiveJobs& jobs) noexcept { active_jobs_ = &jobs; }

  LaneJob& job(std::uint64_t key);
  std::size_t jobs() const noexcept { return jobs_.size(); }
  const LaneLoad& load() const noexcept { return load_; }
  // At the beginning of a round: which jobs are active.
  void count(const std::vector<LaneGroup*>& groups, std::uint64_t now_ns);
  // While jobs share the node the queues of their links are bound by what each may have. A job that
  // is alone has the bounds of FanOut. Where ports are known no link has more than these.
  void bind_links(const std::vector<LaneGroup*>& groups, LaneLinks& links, std::uint64_t now_ns);
  // Forgets jobs without a group and a frame in flight.
  void settle();

 private:
  void count_held();
  void look_at_links(const std::vector<std::unique_ptr<LanePeer>>& peers, std::uint64_t now_ns);
  bool has_new_link(const std::vector<std::unique_ptr<LanePeer>>& peers);
  // How many links FanOut has to bind: none to one node alone.
  std::size_t fanned_out(const std::vector<std::unique_ptr<LanePeer>>& peers, bool looks,
                         std::uint64_t now_ns);
  void bind_links_of_one(const std::vector<std::unique_ptr<LanePeer>>& peers, std::uint64_t now_ns);
  void sort_round_trips(const std::vector<std::unique_ptr<LanePeer>>& peers);
  // The shortest of the links to a node: one that was opened while others filled the path has never
  // seen it empty. 0: of none known.
  std::uint64_t round_trip_to(const wire::NodeId& node) const;

  std::uint32_t lane_;
  std::vector<std::unique_ptr<LaneJob>> jobs_;
  LaneLoad load_;
  std::array<LaneJob::Held, 64> held_{};  // by all jobs of a user; two may have the same place
  ActiveJobs own_active_jobs_;
  ActiveJobs* active_jobs_ = &own_active_jobs_;
  LaneShare share_;
  bool links_shared_ = false;  // by jobs, at the last look
  bool links_bound_ = false;   // some may be
  std::ptrdiff_t open_links_ = 0;
  FanOut fan_out_;
  std::vector<std::pair<wire::NodeId, std::uint64_t>> round_trips_;  // of the last look, in order
};

}  // namespace tern::daemon
