#pragma once

// JSON that others have a hand in: what peers and tools send, and what holds names of clients.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tern::daemon {

// Copying and printing JSON recurse once a level, so a line of brackets would exhaust the stack.
inline constexpr int kMaxJsonDepth = 16;
// Each value is memory of its own, so a million of them take longer than a turn may. The list of
// members of the largest group has some 2,500.
inline constexpr int kMaxJsonValues = 8192;

// What keeps a text from being parsed; null: nothing.
inline const char* objection_to_json(std::string_view text) noexcept {
  int depth = 0;
  int values = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '[' || c == '{')) {
      if (++depth > kMaxJsonDepth) return "nests deeper than 16 levels";
      ++values;
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    } else if (!in_text && c == ',') {
      ++values;
    }
    if (values > kMaxJsonValues) return "has more than 8192 values";
  }
  return nullptr;
}

// Names may hold any bytes of clients; what is not UTF-8 is replaced. Plain dump() throws there.
inline std::string json_text(const nlohmann::json& document, int indent = -1) {
  return document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tern::daemon
