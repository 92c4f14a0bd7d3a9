#include "daemon/operator/operator_view.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <utility>

#include "daemon/config/settings.h"
#include "daemon/lane/lane.h"
#include "daemon/metrics/counter_table.h"
#include "daemon/operator/version.h"
#include "daemon/service/recent_log.h"

namespace tern::daemon {
namespace {

constexpr std::string_view kRemoved = "(removed)";

std::uint64_t calendar_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// A secret in a setting, or the way to one.
bool is_secret(std::string_view name) {
  for (const std::string_view part : {"key", "secret", "password", "token"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// Something that fails says with which file, so that a line may name what the settings hide.
nlohmann::json report_log(const Config& config) {
  std::vector<std::string> lines = recent_log();
  for (const Setting& setting : settings()) {
    const std::string secret = is_secret(setting.name) ? value_text(config, setting) : "";
    if (secret.empty()) continue;
    for (std::string& line : lines) {
      for (auto at = line.find(secret); at != std::string::npos; at = line.find(secret, at)) {
        line.replace(at, secret.size(), kRemoved);
        at += kRemoved.size();
      }
    }
  }
  return lines;
}

std::vector<TraceRing*> rings_of(const std::vector<Lane*>& lanes) {
  std::vector<TraceRing*> rings;
  rings.reserve(lanes.size());
  for (Lane* const lane : lanes) rings.push_back(&lane->trace());
  return rings;
}

}  // namespace

OperatorView::OperatorView(const Config& config, const Surroundings& around)
    : config_(config),
      clock_(around.clock),
      conductor_(around.conductor),
      tuning_(around.tuning),
      tracer_(around.clock, rings_of(around.lanes)) {}

Result<std::unique_ptr<OperatorView>> OperatorView::create(const Config& config,
                                                           const Access& access,
                                                           const Surroundings& around) {
  counters::Writer writer;
  writer.pid = static_cast<std::uint64_t>(::getpid());
  writer.started_ns = calendar_now_ns();
  writer.node_id = node_text(around.conductor.reports().self());
  writer.software = kVersion;
  const auto blocks = counter_blocks(static_cast<std::uint32_t>(around.lanes.size()));
  auto file = counters::CountersFile::create(counters::path_beside(config.control_socket),
                                             S_IRUSR | S_IWUSR, writer, blocks);
  if (!file) return tl::unexpected(file.error());
  std::unique_ptr<OperatorView> view(new OperatorView(config, around));
  view->file_ = std::move(*file);
  view->admit(access);
  for (std::uint32_t i = 0; i < around.lanes.size(); ++i) {
    around.lanes[i]->count_in(counters_in<LaneCounters>(view->file_.words(kLaneBlock, i)),
                              view->file_.words(kKindBlock, i));
  }
  around.conductor.attach(counters_in<ConductorCounters>(view->file_.words(kConductorBlock, 0)),
                          [self = view.get()] { return self->about(); });
  around.tuning.set_change_sink(
      [self = view.get()](const RecipeChange& change) { self->tracer_.on_recipe_change(change); });
  return view;
}

void OperatorView::admit(const Access& access) {
  if (auto done = file_.admit_group([&](gid_t group) { return access.is_observed_by(group); });
      !done) {
    spdlog::warn("who may read the counters file stays as it was: {}", done.error().text);
  }
}

nlohmann::json OperatorView::about() const {
  return {{"t", "about"},
          {"software", kVersion},
          {"calendar_ns", static_cast<std::int64_t>(calendar_now_ns() - clock_.now_ns())}};
}

void OperatorView::tick() {
  const auto words = file_.words(kTunerBlock, 0);
  const auto values = tuning_.counter_values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::atomic_ref(words[i]).store(values[i], std::memory_order_relaxed);
  }
  file_.touch(calendar_now_ns());
  if (tracer_.on()) tracer_.remember(known());
}

Tracer::Known OperatorView::known() const {
  const Reports& reports = conductor_.reports();
  return {reports.names(), reports.devices(tracer_.devices_since_ns()), {}};
}

Result<nlohmann::json> OperatorView::handle(std::string_view verb, const nlohmann::json& args) {
  if (verb == "settings") return report_settings(config_);
  if (verb == "log") return report_log(config_);
  // A page of events needs nothing known, and there may be many of them.
  const bool reads = text_of(args, "action") == "read";
  Tracer::Known now;
  if (!reads) {
    now = known();
    now.peers = conductor_.reports().peers();
  }
  auto answer = tracer_.handle(args, now);
  if (answer && answer->contains("state")) {
    (*answer)["node_id"] = node_text(conductor_.reports().self());
    (*answer)["software"] = kVersion;
    (*answer)["pid"] = ::getpid();
  }
  return answer;
}

nlohmann::json report_settings(const Config& config) {
  nlohmann::json rows = nlohmann::json::array();
  const Config defaults;
  for (const Setting& setting : settings()) {
    const std::string value = value_text(config, setting);
    const bool changed = value != value_text(defaults, setting);
    rows.push_back({{"section", setting.section},
                    {"name", setting.name},
                    {"value", is_secret(setting.name) && changed ? std::string(kRemoved) : value},
                    {"changed", changed}});
  }
  return rows;
}

}  // namespace tern::daemon
