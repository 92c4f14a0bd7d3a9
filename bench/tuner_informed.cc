#include "bench/tuner_informed.h"

#include <algorithm>

namespace tern::bench {

InformedPolicies::InformedPolicies(std::vector<bool> allowed) {
  for (std::size_t reduce = 0; reduce < allowed.size(); ++reduce) {
    for (std::size_t broadcast = 0; broadcast < allowed.size(); ++broadcast) {
      if (allowed[reduce] && allowed[broadcast]) {
        pairs_.push_back(reduce * allowed.size() + broadcast);
      }
    }
  }
  followers_[0].fade = 0.0;
  followers_[1].fade = 0.8;
  followers_[2].fade = 1.0;
}

void InformedPolicies::see(const std::vector<double>& times) {
  for (Follower& follower : followers_) {
    std::vector<double>& past = follower.past;
    past.resize(pairs_.size(), 0.0);
    const auto least = std::min_element(past.begin(), past.end()) - past.begin();
    const double taken = times[pairs_[static_cast<std::size_t>(least)]];
    follower.taken_ns.push_back(taken);
    follower.total_ns += taken;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      past[i] = follower.fade * past[i] + times[pairs_[i]];
    }
  }
}

const std::vector<double>& InformedPolicies::best() const {
  return std::min_element(
             followers_.begin(), followers_.end(),
             [](const Follower& a, const Follower& b) { return a.total_ns < b.total_ns; })
      ->taken_ns;
}

}  // namespace tern::bench
