#include "daemon/operator/verbs.h"

#include <spdlog/spdlog.h>

#include <array>

#include "daemon/operator/host_report.h"
#include "daemon/operator/version.h"
#include "wire/versions.h"

namespace tern::daemon {
namespace {

// The step of the conductor's turn. Whoever asks may call the verb anything.
const char* step_of(std::string_view verb) {
  constexpr std::string_view kPrefix = "verb ";
  constexpr std::array kSteps{"verb status",   "verb host",    "verb clients",  "verb peers",
                              "verb groups",   "verb tensors", "verb counters", "verb tuner",
                              "verb explain",  "verb policy",  "verb version",  "verb trace",
                              "verb settings", "verb log",     "verb drain"};
  for (const char* step : kSteps) {
    if (std::string_view(step).substr(kPrefix.size()) == verb) return step;
  }
  return "verb that is unknown";
}

// Empty if there is none.
std::string text_argument(const nlohmann::json& args, const char* name) {
  const auto found = args.find(name);
  return found != args.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<nlohmann::json> Verbs::handle(std::string_view verb, const nlohmann::json& args,
                                     const Credentials& credentials) {
  sources_.conductor->turns().step(step_of(verb));
  const bool sets_policy = verb == "policy" && args.contains("set");
  const Access& access = *sources_.access;
  if (auto allowed = access.check(sets_policy ? kPolicySet : verb, credentials); !allowed) {
    return tl::unexpected(allowed.error());
  }
  const Scope scope = access.scope_of(credentials);
  const Conductor& conductor = *sources_.conductor;
  if (verb == "status") {
    nlohmann::json status = sources_.status(scope);
    status["standing"] = standing_name(access.standing_of(credentials));
    return status;
  }
  if (verb == "host") return report_host(sources_.flight_directory());
  if (verb == "clients") return conductor.reports().clients(scope);
  if (verb == "peers") return conductor.reports().peers();
  if (verb == "counters") return conductor.reports().counters();
  if (verb == "explain") return sources_.tuning->explain(text_argument(args, "tensor"), scope);
  if (verb == "policy") return policy(args);
  if (verb == "drain") return drain(args);
  if (verb == "version") {
    return nlohmann::json{{"version", kVersion},
                          {"wire", wire::kWireProtocol},
                          {"shm", wire::kShmAbi},
                          {"control", wire::kControlProtocol}};
  }
  return sources_.view->handle(verb, args);
}

// Lists that grow with the groups and tensors of a user's jobs.
RowSource Verbs::rows(std::string_view verb, const Credentials& credentials) {
  if (verb != "groups" && verb != "tensors" && verb != "tuner") return nullptr;
  const Access& access = *sources_.access;
  if (!access.check(verb, credentials)) return nullptr;
  const Scope scope = access.scope_of(credentials);
  if (verb == "tuner") return sources_.tuning->report(scope);
  const Reports& reports = sources_.conductor->reports();
  return verb == "groups" ? reports.groups(scope) : reports.tensors(scope);
}

Result<nlohmann::json> Verbs::policy(const nlohmann::json& args) {
  Tuning& tuning = *sources_.tuning;
  if (args.contains("set")) {
    if (!args["set"].is_string()) return fail(Errc::invalid_argument, "set is a text of rules");
    if (auto changed = tuning.set_policy(text_argument(args, "set")); !changed) {
      return tl::unexpected(changed.error());
    }
    spdlog::info("the policy is now: {}", tuning.policy().text());
  }
  return nlohmann::json{{"policy", tuning.policy().text()}};
}

Result<nlohmann::json> Verbs::drain(const nlohmann::json& args) {
  constexpr double kMaxSeconds = 7 * 86'400;
  Drain& drain = sources_.conductor->drain();
  const auto begin = args.find("seconds");
  for (const char* const key : {"cancel", "if_idle"}) {
    if (args.contains(key) && !args[key].is_boolean()) {
      return fail(Errc::invalid_argument, std::string(key) + " is true or false");
    }
  }
  if (args.value("cancel", false)) {
    if (drain.is_on()) spdlog::info("new jobs are taken again: the drain was cancelled");
    drain.cancel();
  } else if (begin != args.end()) {
    const double seconds = begin->is_number() ? begin->get<double>() : -1;
    if (!(seconds >= 0 && seconds <= kMaxSeconds)) {
      return fail(Errc::invalid_argument, "seconds is a number from 0 to 604800");
    }
    drain.begin(static_cast<std::uint64_t>(seconds * 1e9));
    spdlog::info("new jobs are refused, and the daemon will end: it {}", drain.text());
  } else if (args.value("if_idle", false) && drain.is_idle() && !drain.is_on()) {
    drain.begin(0);
    spdlog::info("the daemon ends, because it was asked to when nobody needs it");
  }
  return drain.report();
}

}  // namespace tern::daemon
