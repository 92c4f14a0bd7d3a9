#pragma once

// What tools look at beyond the conductor's reports: the counters file, traces, the settings in
// force and the last lines of the log.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "counters/counters_file.h"
#include "daemon/access/access.h"
#include "daemon/conductor/conductor.h"
#include "daemon/config/config.h"
#include "daemon/operator/tracer.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

class OperatorView {
 public:
  // What it shows, which ends before the view does. The clock outlives it.
  struct Surroundings {
    const Clock& clock;
    std::vector<Lane*> lanes;
    Conductor& conductor;
    Tuning& tuning;
  };

  // From here on all count in the file beside the control socket, so before the lanes run.
  // REQUIRES: the configuration outlives the view.
  static Result<std::unique_ptr<OperatorView>> create(const Config& config, const Access& access,
                                                      const Surroundings& around);

  // The file's group reads it if its members may see everything.
  void admit(const Access& access);
  // The verbs trace, settings and log.
  Result<nlohmann::json> handle(std::string_view verb, const nlohmann::json& args);
  // Once a second.
  void tick();

 private:
  OperatorView(const Config& config, const Surroundings& around);
  nlohmann::json about() const;
  // Without peers, which an answer alone has.
  Tracer::Known known() const;

  const Config& config_;
  const Clock& clock_;
  Conductor& conductor_;
  Tuning& tuning_;
  counters::CountersFile file_;
  Tracer tracer_;
};

// Settings in force, without what must not leave the daemon.
nlohmann::json report_settings(const Config& config);

// The page docs/counters.md: counters, metrics and events of a trace.
std::string counters_markdown();

}  // namespace tern::daemon
