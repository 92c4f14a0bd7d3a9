#include "daemon/lane/job_sharing.h"

#include <algorithm>

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
  load_ = {};
  for (const auto& job : jobs_) load_.count(*job, now_ns);
  active_jobs_->publish(lane_, load_.wire_jobs);
}

void JobSharing::settle() {
  std::erase_if(jobs_,
                [](const auto& job) { return job->groups == 0 && job->held == LaneJob::Held{}; });
}

void JobSharing::bind_links(const std::vector<LaneGroup*>& groups, LaneLinks& links,
                            std::uint64_t now_ns) {
  auto& peers = links.all();
  if (!active_jobs_->several()) {
    if (!links_bound_) return;
    links_bound_ = false;
    for (const auto& peer : peers) {
      if (peer->link) peer->link->bound_queue(0);
    }
    return;
  }
  if (!share_.due(now_ns)) return;
  links_bound_ = true;
  std::uint64_t acked_bytes = 0;
  for (const auto& peer : peers) acked_bytes += peer->link ? peer->link->stats().acked_bytes : 0;
  share_.look(acked_bytes, now_ns);
  const auto for_links = [&groups](auto&& action) {
    for (LaneGroup* group : groups) {
      for (LanePeer* peer : group->core().peers()) {
        if (peer != nullptr && peer->link && !peer->lost) action(group->core().job(), *peer);
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
  // Those that fill the path at this moment: a job between two of its bursts leaves it to others.
  std::uint32_t filling = 0;
  for (const auto& job : jobs_) {
    job->backlog = LaneShare::backlog(job->backlog, job->under_way);
    if (!LaneShare::is_light(job->under_way)) filling += job->weight;
  }
  // A link that was opened while others filled the path has never seen it empty.
  const auto round_trip_to = [&peers](const wire::NodeId& node) {
    std::uint64_t shortest = 0;
    for (const auto& peer : peers) {
      if (peer->id != node || peer->round_trip_ns == 0) continue;
      shortest = shortest == 0 ? peer->round_trip_ns : std::min(shortest, peer->round_trip_ns);
    }
    return shortest;
  };
  for_links([&](const LaneJob& job, LanePeer& peer) {
    if (LaneShare::is_light(job.backlog)) return peer.link->bound_queue(0);
    const bool fills = !LaneShare::is_light(job.under_way);
    const std::uint32_t all = filling + (fills ? 0 : job.weight);
    const LaneShare::Parts parts{load_.part(job.weight), load_.part(load_.least_weight),
                                 static_cast<double>(job.weight) / all};
    peer.link->bound_queue(share_.bound(parts, job.links, round_trip_to(peer.id)));
  });
}

}  // namespace tern::daemon
