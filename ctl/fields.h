#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// Fields of a daemon's answer as text. An older or newer daemon may leave a field out or give it
// another type: then it is "-", never a failure.
namespace tern::ctl {

// The rows of an answer, or of its field, that is a list. None if it is missing or something else.
const nlohmann::json& rows_of(const nlohmann::json& answer);
const nlohmann::json& rows_of(const nlohmann::json& answer, std::string_view key);

std::string text_field(const nlohmann::json& object, std::string_view key);
std::string count_field(const nlohmann::json& object, std::string_view key);
std::string bytes_field(const nlohmann::json& object, std::string_view key);
// Units of time_field.
inline constexpr double kSecond = 1;
inline constexpr double kMs = 1e-3;
inline constexpr double kUs = 1e-6;

// The field's unit as seconds: 1e-3 for milliseconds.
std::string time_field(const nlohmann::json& object, std::string_view key, double unit_s);
std::string ratio_field(const nlohmann::json& object, std::string_view key);
// A small number without a unit, "0.125".
std::string fraction_field(const nlohmann::json& object, std::string_view key);
std::string ranks_field(const nlohmann::json& object, std::string_view key);

}  // namespace tern::ctl
