#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// The verbs about the tuner.
namespace tern::ctl {

std::string render_tuner(const nlohmann::json& tensors);
std::string render_explain(const nlohmann::json& tensors);
std::string render_policy(const nlohmann::json& policy);

}  // namespace tern::ctl
