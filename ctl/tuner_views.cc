#include "ctl/tuner_views.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ctl/fields.h"
#include "ctl/table.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

bool flag(const json& object, std::string_view key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_boolean() && value->get<bool>();
}

bool is_positive(const json& object, std::string_view key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() && value->get<double>() > 0.0;
}

bool has_operation(const json& tensor) {
  const std::string name = text_field(tensor, "operation");
  return !name.empty() && name != "-";
}

std::string operation_of(const json& tensor) {
  return has_operation(tensor) ? text_field(tensor, "operation") : "not used yet";
}

}  // namespace

std::string render_tuner(const json& tensors) {
  if (tensors.empty()) return "No tensor is tuned.\n";
  Table table({{"TENSOR"},
               {"OPERATION"},
               {"LEVEL"},
               {"RECIPE"},
               {"OPS", kRight},
               {"SWITCHES", kRight},
               {"LINK MBIT/S", kRight},
               {"MEASURED", kRight},
               {"OWES", kRight}});
  for (const json& tensor : tensors) {
    table.add_row({text_field(tensor, "name"), operation_of(tensor), text_field(tensor, "level"),
                   text_field(tensor, "recipe"), count_field(tensor, "ops"),
                   count_field(tensor, "switches"), fraction_field(tensor, "link_mbit_s"),
                   time_field(tensor, "measured_us", kUs),
                   fraction_field(tensor, "residual_ratio")});
    table.add_note(text_field(tensor, "reason"));
    if (const std::string alarm = text_field(tensor, "alarm"); alarm != "-" && !alarm.empty()) {
      table.add_note("careful: " + alarm);
    }
  }
  return table.text();
}

std::string render_explain(const json& tensors) {
  if (tensors.empty()) return "No tensor of that name is tuned.\n";
  std::string text;
  for (const json& tensor : tensors) {
    text += fmt::format(
        "{}/{} in group {}, {}: {}\n  {}\n  level {}: an encoding may leave out {} of the energy, "
        "the "
        "residual may be {} times the gradient and is {}\n",
        text_field(tensor, "job"), text_field(tensor, "name"), text_field(tensor, "group"),
        operation_of(tensor), text_field(tensor, "recipe"), text_field(tensor, "reason"),
        text_field(tensor, "level"), fraction_field(tensor, "allowed_loss"),
        fraction_field(tensor, "allowed_residual"), fraction_field(tensor, "residual_ratio"));
    if (!has_operation(tensor)) {
      text +=
          "  auto chooses for all_reduce, reduce, reduce_scatter and all_gather; a broadcast loses "
          "nothing unless a recipe is written out for it\n";
    }
    if (flag(tensor, "replayed")) text += "  its choices are replayed from a log\n";
    if (const std::string alarm = text_field(tensor, "alarm"); alarm != "-" && !alarm.empty()) {
      text += "  careful: " + alarm + "\n";
    }
    Table table({{"RECIPE"},
                 {"PREDICTED", kRight},
                 {"OF THE LANE", kRight},
                 {"OF THE LINK", kRight},
                 {"FROM OPS", kRight},
                 {"RATIO", kRight},
                 {"LOSS", kRight},
                 {"WHY"}});
    const auto candidates = tensor.find("candidates");
    if (candidates == tensor.end() || !candidates->is_array()) continue;
    for (const json& one : *candidates) {
      table.add_row({text_field(one, "recipe"), time_field(one, "predicted_us", kUs),
                     time_field(one, "work_us", kUs), time_field(one, "wire_us", kUs),
                     flag(one, "tried") ? time_field(one, "expected_us", kUs) : "-",
                     ratio_field(one, "ratio"), fraction_field(one, "loss"),
                     text_field(one, "verdict")});
      if (is_positive(one, "client_us")) {
        table.add_note("its client encodes before the operation: " +
                       time_field(one, "client_us", kUs));
      }
    }
    text += table.text();
  }
  return text;
}

std::string render_policy(const json& policy) {
  const std::string text = text_field(policy, "policy");
  return text.empty() || text == "-"
             ? "No rules: tensors that say nothing of their own are balanced.\n"
             : text + "\n";
}

}  // namespace tern::ctl
