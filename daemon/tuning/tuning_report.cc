// What the operator sees of the tuner: docs/control-protocol.md describes every field.

#include <algorithm>
#include <string_view>

#include "daemon/lane/lane.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {
namespace {

// Whether the text is job/name. Very many tensors may be asked.
bool is_path(std::string_view text, std::string_view job, std::string_view name) noexcept {
  return text.size() == job.size() + 1 + name.size() && text.starts_with(job) &&
         text[job.size()] == '/' && text.ends_with(name);
}

}  // namespace

std::string Tuning::choice_text(const TensorState& state) const {
  const auto found = state.tuning ? tensors_.find(state.tuning->number()) : tensors_.end();
  if (found == tensors_.end() || found->second.published.empty()) return "raw";
  return tuner_.choice_text(found->second.published.back().choice);
}

// Nothing where only a probe, a few raw chunks, begins or ends.
void Tuning::tell_change(std::uint64_t number, const Tuned& tuned) const {
  const auto& published = tuned.published;
  const tuner::Choice& now = published.back().choice;
  const tuner::Choice before =
      published.size() > 1 ? published[published.size() - 2].choice : tuner::Choice{};
  const std::string from = published.size() > 1 ? tuner_.choice_text(before) : "";
  const std::string to = tuner_.choice_text(now);
  // What was tried may be what is used from now on.
  if (from == to && before.trial == now.trial) return;
  change_sink_(
      {tuned.group, tuned.job, tuned.name, from, to, tuner_.view(number).reason, now.trial});
}

nlohmann::json Tuning::describe(std::uint64_t number, const Tuned& tuned, bool all) const {
  const tuner::Tuner::TensorView view = tuner_.view(number);
  nlohmann::json row = {{"group", tuned.group},
                        {"job", tuned.job},
                        {"name", tuned.name},
                        {"operation", view.operation},
                        {"level", view.level},
                        {"recipe", view.recipe},
                        {"replayed", !tuned.tuning->replay.empty()},
                        {"reason", view.reason},
                        {"alarm", view.alarm},
                        {"allowed_loss", view.bound_loss},
                        {"allowed_residual", view.bound_residual},
                        {"residual_ratio", view.residual},
                        {"link_mbit_s", view.rate * 8.0 / 1e6},
                        {"measured_us", view.measured_ns / 1e3},
                        {"bottleneck", view.bottleneck},
                        {"ops", view.ops},
                        {"switches", view.switches},
                        {"alarms", view.alarms}};
  if (!all) return row;
  nlohmann::json candidates = nlohmann::json::array();
  for (const auto& one : view.candidates) {
    candidates.push_back({{"recipe", one.recipe},
                          {"allowed", one.allowed},
                          {"measured", one.measured},
                          {"tried", one.tried},
                          {"predicted_us", one.predicted_ns / 1e3},
                          {"expected_us", one.measured_ns / 1e3},
                          {"work_us", one.work_ns / 1e3},
                          {"wire_us", one.wire_ns / 1e3},
                          {"client_us", one.client_ns / 1e3},
                          {"ratio", one.ratio},
                          {"loss", one.loss},
                          {"verdict", one.verdict}});
  }
  row["candidates"] = std::move(candidates);
  return row;
}

RowSource Tuning::report(const Scope& scope) const {
  return [this, scope, next = std::uint64_t{0}](nlohmann::json& rows) mutable {
    auto at = tensors_.lower_bound(next);
    for (std::size_t passed = 0; at != tensors_.end() && passed < kPassedOfCall; ++passed, ++at) {
      if (rows.size() == kRowsOfCall) break;
      const auto& [number, tuned] = *at;
      if (scope.has(tuned.users)) rows.push_back(describe(number, tuned, false));
      next = number + 1;
    }
    return at != tensors_.end();
  };
}

Result<nlohmann::json> Tuning::explain(const std::string& tensor, const Scope& scope) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [number, tuned] : tensors_) {
    if (!scope.has(tuned.users)) continue;
    if (tuned.name == tensor || is_path(tensor, tuned.job, tuned.name)) {
      rows.push_back(describe(number, tuned, true));
    }
  }
  if (rows.empty()) {
    return fail(
        Errc::unknown_tensor,
        "no tensor " + tensor + " is tuned at present; `ternctl tuner` lists those that are");
  }
  return rows;
}

// In the order of tuner_counters().
std::array<std::uint64_t, 5> Tuning::counter_values() const {
  return {decisions_, switches_, spent_ns_, shadow_ != nullptr ? shadow_->cpu_ns() : 0,
          shadow_ != nullptr ? shadow_->disturbed() : 0};
}

}  // namespace tern::daemon
