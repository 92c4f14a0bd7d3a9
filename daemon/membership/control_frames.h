#pragma once

// Names shared by both ends of the control links (docs/wire-format.md, "Control messages").

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errc.h"
#include "wire/frame.h"

namespace tern::daemon {

// Which control link a message came by or goes to; kSelf is this daemon itself.
using LinkRef = std::uint64_t;
inline constexpr LinkRef kSelf = 0;

class ControlSender {
 public:
  virtual ~ControlSender() = default;
  // Queues; never calls back. A lost link gets nothing.
  void send(LinkRef to, nlohmann::json message) { send_to_all({to}, std::move(message)); }
  virtual void send_to_all(std::vector<LinkRef> to, nlohmann::json message) = 0;
  // Who is charged for what comes by the link: where its peer is, in words. REQUIRES: not kSelf.
  virtual std::string source_of(LinkRef link) const = 0;
};

inline std::string node_text(const wire::NodeId& id) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(id.high),
                static_cast<unsigned long long>(id.low));
  return text;
}

// Only what node_text() writes: a node has one name.
inline std::optional<wire::NodeId> parse_node(const std::string& text) {
  if (text.size() != 32) return std::nullopt;
  unsigned long long high = 0;
  unsigned long long low = 0;
  if (std::sscanf(text.c_str(), "%16llx%16llx", &high, &low) != 2) return std::nullopt;
  const wire::NodeId id{high, low};
  return node_text(id) == text ? std::optional(id) : std::nullopt;
}

// Foreign JSON: every field is optional until it has been looked at. `fallback` where it is missing
// or of another type.
inline std::string text_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}
inline std::int64_t number_of(const nlohmann::json& message, const char* key,
                              std::int64_t fallback = 0) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                              : fallback;
}
inline bool flag_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_boolean() && found->get<bool>();
}
inline Errc errc_of(const nlohmann::json& message, const char* key) {
  const auto number = number_of(message, key, static_cast<std::int64_t>(Errc::internal));
  return number > 0 && number < kErrcCount ? static_cast<Errc>(number) : Errc::internal;
}

}  // namespace tern::daemon
