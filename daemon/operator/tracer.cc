#include "daemon/operator/tracer.h"

#include <array>
#include <ctime>

#include "daemon/membership/control_frames.h"
#include "plan/plans.h"
#include "wire/block.h"

namespace tern::daemon {
namespace {

constexpr std::size_t kMaxChanges = 4096;
constexpr std::size_t kMaxDeviceRows = 4096;
constexpr std::size_t kMaxNamedGroups = 256;
constexpr std::size_t kMaxNamedTensors = 32'768;  // of all groups: with them an answer has its room
// Of one answer: some hundred kilobytes, and a few milliseconds of the conductor's time.
constexpr std::size_t kPageEvents = 4096;

constexpr std::array<const char*, 6> kCodecs{"raw",    "bf16",     "3lc",
                                             "staged", "lossless", "xordelta"};

std::string codec_name(const TraceEvent& event) {
  return event.codec < kCodecs.size() ? kCodecs[event.codec] : "unknown";
}

std::uint64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_of_op(TraceKind kind) {
  return kind == TraceKind::op || kind == TraceKind::wait || kind == TraceKind::queue;
}

nlohmann::json row_of(const TraceEvent& event) {
  nlohmann::json row{{"kind", trace_kinds()[static_cast<std::size_t>(event.kind)].name},
                     {"begin_ns", event.begin_ns},
                     {"end_ns", event.end_ns},
                     {"group", event.group},
                     {"tensor", event.tensor},
                     {"sequence", event.sequence},
                     {"bytes", event.bytes}};
  if (is_of_op(event.kind)) {
    row["op"] = plan::name_of(event.node);
    row["bytes_raw"] = event.bytes_raw;
    row["result"] = errc_name(static_cast<Errc>(event.codec));
  } else {
    row["chunk"] = event.chunk;
    row["node"] = event.node;
    if (event.kind != TraceKind::wire) {
      row["bytes_raw"] = event.bytes_raw;
      row["codec"] = codec_name(event);
    }
  }
  return row;
}

}  // namespace

void Tracer::remember(const Known& known) {
  for (const nlohmann::json& group : known.names) {
    const std::uint64_t number = group["number"].get<std::uint64_t>();
    const auto found = groups_.find(number);
    if (found == groups_.end() && groups_.size() == kMaxNamedGroups) continue;
    nlohmann::json& kept = groups_[number];
    if (kept.is_null()) {
      kept = group;
      kept["tensors"] = nlohmann::json::object();
    }
    name_tensors(group["tensors"], kept["tensors"]);
  }
  for (const nlohmann::json& device : known.devices) {
    if (devices_.size() == kMaxDeviceRows) {
      devices_.pop_front();
      ++devices_dropped_;
    }
    devices_.push_back(device);
  }
  told_ns_ = clock_.now_ns();
}

// Each declaration has another id, however often it is made.
void Tracer::name_tensors(const nlohmann::json& tensors, nlohmann::json& named) {
  for (const auto& [id, name] : tensors.items()) {
    if (named.contains(id)) continue;
    if (named_tensors_ < kMaxNamedTensors) {
      named[id] = name;
      ++named_tensors_;
    } else {
      has_unnamed_ = true;
    }
  }
}

void Tracer::on_recipe_change(const RecipeChange& change) {
  if (!on_) return;
  if (changes_.size() == kMaxChanges) {
    changes_.pop_front();
    ++changes_dropped_;
  }
  changes_.push_back({{"at_ns", clock_.now_ns()},
                      {"group", change.group},
                      {"job", change.job},
                      {"tensor", change.tensor},
                      {"from", change.from},
                      {"to", change.to},
                      {"reason", change.reason},
                      {"trial", change.trial}});
}

nlohmann::json Tracer::summary(const nlohmann::json& peers) const {
  nlohmann::json clocks = nlohmann::json::array(), groups = nlohmann::json::array();
  for (const nlohmann::json& peer : peers) {
    if (!peer.contains("clock_offset_ns") || peer["clock_offset_ns"].is_null()) continue;
    clocks.push_back({{"node_id", peer["node_id"]},
                      {"offset_ns", peer["clock_offset_ns"]},
                      {"error_ns", peer["clock_error_ns"]}});
  }
  for (const auto& [number, group] : groups_) groups.push_back(group);
  return {{"state", on_     ? "on"
                    : ever_ ? "off"
                            : "never"},
          {"started_ns", started_ns_},
          {"stopped_ns", stopped_ns_},
          {"steady_ns", clock_.now_ns()},
          {"wall_ns", wall_ns()},
          {"lanes", rings_.size()},
          {"lane_events", TraceRing::kEvents},
          {"groups", groups},
          {"has_unnamed", has_unnamed_},
          {"changes", changes_},
          {"changes_dropped", changes_dropped_},
          {"devices", devices_},
          {"devices_dropped", devices_dropped_},
          {"clocks", clocks}};
}

Result<nlohmann::json> Tracer::page(std::uint64_t lane, std::uint64_t from) const {
  if (lane >= rings_.size()) {
    return fail(Errc::invalid_argument,
                "there are " + std::to_string(rings_.size()) + " lanes, from 0");
  }
  const TraceRing::Page page = rings_[lane]->read(from, kPageEvents);
  nlohmann::json events = nlohmann::json::array();
  for (const TraceEvent& event : page.events) events.push_back(row_of(event));
  return nlohmann::json{{"events", std::move(events)},
                        {"next", page.next},
                        {"dropped", page.dropped},
                        {"more", page.more}};
}

Result<nlohmann::json> Tracer::handle(const nlohmann::json& args, const Known& known) {
  const std::string action = text_of(args, "action");
  if (action == "start") {
    if (on_) {
      return fail(Errc::already_exists,
                  "a trace is being recorded; `ternctl trace stop` ends and writes it");
    }
    on_ = ever_ = true;
    changes_.clear();
    changes_dropped_ = 0;
    devices_.clear();
    devices_dropped_ = 0;
    groups_.clear();
    named_tensors_ = 0;
    has_unnamed_ = false;
    remember(known);
    started_ns_ = clock_.now_ns();
    stopped_ns_ = 0;
    for (TraceRing* ring : rings_) ring->start();
    return summary(known.peers);
  }
  if (action == "stop") {
    if (!ever_) {
      return fail(Errc::invalid_argument,
                  "no trace has been recorded; `ternctl trace start` begins one");
    }
    if (on_) {
      remember(known);
      stopped_ns_ = clock_.now_ns();
      for (TraceRing* ring : rings_) ring->stop();
    }
    on_ = false;
    return summary(known.peers);
  }
  if (action == "status") return summary(known.peers);
  if (action == "read") {
    const auto lane = number_of(args, "lane", -1), from = number_of(args, "from", -1);
    if (lane < 0 || from < 0) {
      return fail(Errc::invalid_argument, "lane and from are whole numbers from 0");
    }
    return page(static_cast<std::uint64_t>(lane), static_cast<std::uint64_t>(from));
  }
  return fail(Errc::invalid_argument, "action is start, stop, status or read");
}

}  // namespace tern::daemon
