#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace tern::daemon {

// A list that is made while it is sent, so that neither a turn of the thread nor the memory for the
// answer grows with it. Each call adds some rows, or none; false: the list ends with them. Between
// two calls anything may have come and gone: a source keeps the key of what it has listed last.
using RowSource = std::function<bool(nlohmann::json& rows)>;

// Of one call: a row takes some tens of microseconds, and to pass over what is not shown some ten
// nanoseconds.
inline constexpr std::size_t kRowsOfCall = 32;
inline constexpr std::size_t kPassedOfCall = 1024;

}  // namespace tern::daemon
