#include "daemon/conductor/control_post.h"

#include <utility>

namespace tern::daemon {

void ControlPost::send(LinkRef to, const nlohmann::json& message) {
  if (to == kSelf) {
    inbox_.push_back(message);
  } else {
    links_.send(to, message);
  }
}

nlohmann::json ControlPost::take() {
  auto message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

}  // namespace tern::daemon
