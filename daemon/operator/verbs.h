#pragma once

// The verbs of the control socket: docs/control-protocol.md has the shape of every answer.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "daemon/access/access.h"
#include "daemon/conductor/conductor.h"
#include "daemon/control/control_verbs.h"
#include "daemon/operator/operator_view.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

// Who knows the answers. All outlive the verbs; the view is there before the first question.
struct VerbSources {
  const Access* access = nullptr;
  Conductor* conductor = nullptr;
  Tuning* tuning = nullptr;
  OperatorView* view = nullptr;
  std::function<nlohmann::json(const Scope&)> status;
  std::function<std::string()> flight_directory;
};

class Verbs final : public ControlVerbs {
 public:
  void set_sources(VerbSources sources) { sources_ = std::move(sources); }

  Result<nlohmann::json> handle(std::string_view verb, const nlohmann::json& args,
                                const Credentials& credentials) override;
  RowSource rows(std::string_view verb, const Credentials& credentials) override;
  void at(const char* step) override { sources_.conductor->turns().step(step); }

 private:
  Result<nlohmann::json> policy(const nlohmann::json& args);
  Result<nlohmann::json> drain(const nlohmann::json& args);

  VerbSources sources_;
};

}  // namespace tern::daemon
