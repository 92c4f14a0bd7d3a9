#pragma once

// What the daemon recorded, as events of Chrome's trace format, which Perfetto opens. Times are in
// microseconds of the node's own monotonic clock.

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tern::ctl {

class TraceEvents {
 public:
  using Emit = std::function<void(const nlohmann::json& event)>;

  // `summary` is the daemon's answer to `trace` with action stop.
  TraceEvents(const nlohmann::json& summary, Emit emit);

  // Names of process and threads, the changes of recipes, and what clients said of their devices.
  void add_node();
  // A page of a lane's events.
  void add_lane(std::uint64_t lane, const nlohmann::json& page);

  std::uint64_t dropped() const noexcept { return dropped_; }
  // What `ternctl trace merge` needs to know of the node, and how much was dropped.
  nlohmann::json other_data() const;

 private:
  struct Group {
    std::string uid, job;
    nlohmann::json nodes, tensors;
  };
  // What a device has done so far, by its client.
  struct DeviceTotals {
    std::uint64_t encodes = 0, encode_ns = 0, decodes = 0, decode_ns = 0;
  };
  void add_event(std::uint64_t lane, const nlohmann::json& event);
  void add_devices();
  void add_counter(double ns, const std::string& name, nlohmann::json values);
  void add_name(std::string_view what, std::uint64_t tid, const std::string& name);
  nlohmann::json base(std::string_view phase, std::uint64_t tid, double ns) const;
  nlohmann::json describe(const nlohmann::json& event) const;

  nlohmann::json summary_;
  Emit emit_;
  std::uint64_t pid_ = 1;
  std::map<std::uint64_t, Group> groups_;  // by the daemon's number
  std::uint64_t next_id_ = 1;
  std::uint64_t dropped_ = 0;
};

}  // namespace tern::ctl
