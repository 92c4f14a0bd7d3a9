#include "daemon/lane/job_sharing.h"

#include <algorithm>
#include <utility>

namespace tern::daemon {

LaneJob& JobSharing::job(std::uint64_t key) {
  for (auto& job : jobs_) {
    if (job->key == key) return *job;
  }
  jobs_.push_back(std::make_unique<LaneJob>());
  jobs_.back()->key = key;
  return *jobs_.back();
}

void JobSharing::count(const std::vector<LaneGroup*>& groups, std::uint64_t now_ns) {
  for (LaneGroup* group : groups) {
    if (!group->is_live()) continue;
    LaneJob& job = group->core().job();
    job.busy_ns = now_ns;
    if (group->setup().node_ids.size() > 1) job.wire_ns = now_ns;
  }
  load_.clear();
  for (const auto& job : jobs_) load_.count(*job, now_ns);
  active_jobs_->publish(lane_, load_.wire_jobs);
  count_held();
}

// Also what jobs hold that are not active any more.
void JobSharing::count_held() {
  load_.several_accounts = false;
  for (const auto& job : jobs_) {
    job->held_beside = {};
    load_.several_accounts = load_.several_accounts || job->account != jobs_.front()->account;
  }
  if (jobs_.size() <= 1) return;
  held_.fill({});
  for (const auto& job : jobs_) held_[job->account % held_.size()] += job->held;
  for (const auto& job : jobs_) {
    job->held_beside = held_[job->account % held_.size()];
    job->held_beside -= job->held;
  }
}

void JobSharing::settle() {
  std::erase_if(jobs_,
                [](const auto& job) { return job->groups == 0 && job->held == LaneJob::Held{}; });
}

void JobSharing::look_at_links(const std::vector<std::unique_ptr<LanePeer>>& peers,
                               std::uint64_t now_ns) {
  FanOut::Carried carried;
  for (const auto& peer : peers) {
    if (!peer->link) continue;
    const net::DeliveryRate rate = peer->link->delivery_rate();
    peer->round_trip_ns = rate.round_trip_ns;
    const CarriedByLink::Count count = peer->carried.look(rate);
    carried.add(count.bytes, count.busy_ns);
  }
  if (!fan_out_.look(carried, now_ns)) return;
  for (const auto& peer : peers) peer->carried.forget_new();
}

std::size_t JobSharing::fanned_out(const std::vector<std::unique_ptr<LanePeer>>& peers, bool looks,
                                   std::uint64_t now_ns) {
  const bool several_nodes = std::any_of(
      peers.begin(), peers.end(), [&](const auto& peer) { return peer->id != peers.front()->id; });
  if (!several_nodes) {
    fan_out_.look_at_none(now_ns);
    return 0;
  }
  if (looks) look_at_links(peers, now_ns);
  return peers.size();
}

// Since the last time it was asked.
bool JobSharing::has_new_link(const std::vector<std::unique_ptr<LanePeer>>& peers) {
  const auto open = std::count_if(peers.begin(), peers.end(), [](const auto& peer) {
    return peer->link && peer->link->state() == net::LinkState::open;
  });
  return std::exchange(open_links_, open) < open;
}

// In the round in which jobs no longer share, all links are bound anew. Where ports are known, a
// link that has just opened is bound before it carries much.
void JobSharing::bind_links_of_one(const std::vector<std::unique_ptr<LanePeer>>& peers,
                                   std::uint64_t now_ns) {
  const bool looks = links_shared_ || fan_out_.due(now_ns);
  const bool has_new = fan_out_.knows_ports() && has_new_link(peers);
  if (!looks && !has_new) return;
  links_shared_ = false;
  const std::size_t fanned = fanned_out(peers, looks, now_ns);
  const bool binds = fan_out_.bound(fanned, 0).bytes > 0;
  if (!binds && !links_bound_) return;
  links_bound_ = binds;
  for (const auto& peer : peers) {
    if (peer->link) peer->link->bound_queue(fan_out_.bound(fanned, peer->round_trip_ns));
  }
}

// A job may have thousands of links, and each asks.
void JobSharing::sort_round_trips(const std::vector<std::unique_ptr<LanePeer>>& peers) {
  round_trips_.clear();
  for (const auto& peer : peers) {
    if (peer->round_trip_ns != 0) round_trips_.emplace_back(peer->id, peer->round_trip_ns);
  }
  std::sort(round_trips_.begin(), round_trips_.end());
}

std::uint64_t JobSharing::round_trip_to(const wire::NodeId& node) const {
  const auto shortest =
      std::lower_bound(round_trips_.begin(), round_trips_.end(), std::pair{node, std::uint64_t{0}});
  return shortest == round_trips_.end() || shortest->first != node ? 0 : shortest->second;
}

void JobSharing::bind_links(const std::vector<LaneGroup*>& groups, LaneLinks& links,
                            std::uint64_t now_ns) {
  auto& peers = links.all();
  if (!active_jobs_->several()) return bind_links_of_one(peers, now_ns);
  if (!share_.due(now_ns)) return;
  links_shared_ = links_bound_ = true;
  std::uint64_t acked_bytes = 0;
  for (const auto& peer : peers) acked_bytes += peer->link ? peer->link->stats().acked_bytes : 0;
  share_.look(acked_bytes, now_ns);
  const auto for_links = [&groups](auto&& action) {
    for (LaneGroup* group : groups) {
      for (LanePeer* peer : group->core().peers()) {
        if (peer != nullptr && peer->link && peer->can_serve()) action(group->core().job(), *peer);
      }
    }
  };
  for (const auto& job : jobs_) {
    job->links = 0;
    job->under_way = 0;
  }
  for_links([](LaneJob& job, LanePeer& peer) {
    ++job.links;
    job.under_way += peer.link->unacked_bytes();
    peer.round_trip_ns = peer.link->delivery_rate().round_trip_ns;
  });
  const std::size_t fanned = fan_out_.knows_ports() ? fanned_out(peers, true, now_ns) : 0;
  // Those that fill the path at this moment: a job between two of its bursts leaves it to others.
  UserWeights filling;
  double least_part = 1.0;
  for (const auto& job : jobs_) {
    job->backlog = LaneShare::backlog(job->backlog, job->under_way);
    if (!LaneShare::is_light(job->under_way)) filling.add(job->weighed());
    if (LaneLoad::is_active(*job, now_ns)) least_part = std::min(least_part, load_.part(*job));
  }
  sort_round_trips(peers);
  for_links([&](const LaneJob& job, LanePeer& peer) {
    if (LaneShare::is_light(job.backlog)) {
      return peer.link->bound_queue(fan_out_.bound(fanned, peer.round_trip_ns));
    }
    UserWeights on_path = filling;
    if (LaneShare::is_light(job.under_way)) on_path.add(job.weighed());
    const LaneShare::Parts parts{load_.part(job), least_part, on_path.part_of(1.0, job.weighed())};
    net::QueueBound bound{share_.bound(parts, job.links, round_trip_to(peer.id))};
    const net::QueueBound alone = fan_out_.bound(fanned, peer.round_trip_ns);
    if (alone.bytes > 0) {
      bound.bytes = std::min(bound.bytes, alone.bytes);
      bound.record_bytes = std::min(bound.record_bytes, alone.record_bytes);
    }
    peer.link->bound_queue(bound);
  });
}

}  // namespace tern::daemon
