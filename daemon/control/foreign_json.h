#pragma once

// JSON that others have a hand in: what peers and tools send, and what holds names of clients.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tern::daemon {

// Copying and printing JSON recurse once a level, so a line of brackets would exhaust the stack.
inline constexpr int kMaxJsonDepth = 16;

inline bool is_too_deep(std::string_view text) noexcept {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '[' || c == '{')) {
      if (++depth > kMaxJsonDepth) return true;
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

// Names may hold any bytes of clients; what is not UTF-8 is replaced. Plain dump() throws there.
inline std::string json_text(const nlohmann::json& document, int indent = -1) {
  return document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tern::daemon
