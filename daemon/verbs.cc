#include "daemon/verbs.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "daemon/host_report.h"
#include "daemon/version.h"
#include "wire/versions.h"

namespace tern::daemon {
namespace {

// Empty if there is none.
std::string text_argument(const nlohmann::json& args, const char* name) {
  const auto found = args.find(name);
  return found != args.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<nlohmann::json> Verbs::handle(std::string_view verb, const nlohmann::json& args,
                                     const Credentials& credentials) {
  const Conductor& conductor = *sources_.conductor;
  if (verb == "status") return sources_.status();
  if (verb == "host") return report_host(sources_.flight_directory());
  if (verb == "clients") return conductor.report_clients();
  if (verb == "peers") return conductor.report_peers();
  if (verb == "groups") return conductor.report_groups();
  if (verb == "tensors") return conductor.report_tensors();
  if (verb == "counters") return conductor.report_counters();
  if (verb == "tuner") return sources_.tuning->report();
  if (verb == "explain") return sources_.tuning->explain(text_argument(args, "tensor"));
  if (verb == "policy") return policy(args, credentials);
  if (verb == "version") {
    return nlohmann::json{{"version", kVersion},
                          {"wire", wire::kWireProtocol},
                          {"shm", wire::kShmAbi},
                          {"control", wire::kControlProtocol}};
  }
  if (Window::knows(verb)) return sources_.window->handle(verb, args);
  return fail(Errc::unsupported,
              "unknown verb; this daemon knows status, host, clients, peers, groups, tensors, "
              "counters, tuner, explain, policy, trace, settings, log, version");
}

Result<nlohmann::json> Verbs::policy(const nlohmann::json& args, const Credentials& credentials) {
  Tuning& tuning = *sources_.tuning;
  if (args.contains("set")) {
    if (credentials.uid != 0 && credentials.uid != ::geteuid()) {
      return fail(Errc::permission_denied,
                  "only root and the daemon's own user may change the policy");
    }
    if (!args["set"].is_string()) return fail(Errc::invalid_argument, "set is a text of rules");
    if (auto changed = tuning.set_policy(text_argument(args, "set")); !changed) {
      return tl::unexpected(changed.error());
    }
    spdlog::info("the policy is now: {}", tuning.policy().text());
  }
  return nlohmann::json{{"policy", tuning.policy().text()}};
}

}  // namespace tern::daemon
