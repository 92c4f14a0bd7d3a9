#pragma once

// The conductor's side of `ternctl trace`: turns the lanes' rings on and off, keeps what only the
// conductor knows (names, changes of recipe), and hands it all out page by page.

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "daemon/lane/trace_ring.h"
#include "daemon/tuning/recipe_change.h"

namespace tern::daemon {

class Tracer {
 public:
  // A ring for each lane. They outlive it.
  Tracer(const Clock& clock, std::vector<TraceRing*> rings)
      : clock_(clock), rings_(std::move(rings)) {}

  // What the conductor reports now.
  struct Known {
    nlohmann::json names;
    nlohmann::json devices;  // of what was said from devices_since_ns() on
    nlohmann::json peers;    // for an answer
  };
  // `args` of the verb: action, and lane and from of a page, which needs nothing known.
  Result<nlohmann::json> handle(const nlohmann::json& args, const Known& known);
  bool on() const noexcept { return on_; }
  void on_recipe_change(const RecipeChange& change);
  // Groups and tensors that are there now, which may be gone when the trace is read, and what
  // clients have said of their devices meanwhile.
  void remember(const Known& known);
  // From when on the recording lacks what clients say of devices; 0: from the beginning.
  std::uint64_t devices_since_ns() const noexcept { return on_ ? told_ns_ : 0; }

 private:
  void name_tensors(const nlohmann::json& tensors, nlohmann::json& named);
  nlohmann::json summary(const nlohmann::json& peers) const;
  Result<nlohmann::json> page(std::uint64_t lane, std::uint64_t from) const;

  const Clock& clock_;
  std::vector<TraceRing*> rings_;
  bool on_ = false;
  bool ever_ = false;
  std::uint64_t started_ns_ = 0, stopped_ns_ = 0;
  std::deque<nlohmann::json> changes_;
  std::uint64_t changes_dropped_ = 0;
  std::deque<nlohmann::json> devices_;
  std::uint64_t devices_dropped_ = 0;
  std::uint64_t told_ns_ = 0;
  std::map<std::uint64_t, nlohmann::json> groups_;  // by number
  std::size_t named_tensors_ = 0;                   // in all of them
  bool has_unnamed_ = false;                        // there were more
};

}  // namespace tern::daemon
