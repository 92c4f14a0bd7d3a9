#include "daemon/conductor/control_post.h"

#include <utility>

#include "daemon/control/foreign_json.h"

namespace tern::daemon {

void ControlPost::send_to_all(std::vector<LinkRef> to, nlohmann::json message) {
  if (std::erase(to, kSelf) != 0) inbox_.push_back(message);
  if (!to.empty()) outbox_.push_back({std::move(to), std::move(message)});
  for (; at_once_ > 0 && !outbox_.empty(); --at_once_) send_next();
}

int ControlPost::dispatch(const TimeSlice& slice) {
  at_once_ = kSentAtOnce;
  int sent = 0;
  while (!outbox_.empty()) {
    send_next();
    ++sent;
    if (slice.is_over()) break;
  }
  return sent;
}

void ControlPost::send_next() {
  Letter& letter = outbox_.front();
  if (letter.text.empty()) letter.text = json_text(letter.message);
  links_.send_text(letter.to[letter.sent++], letter.text);
  if (letter.sent == letter.to.size()) outbox_.pop_front();
}

nlohmann::json ControlPost::take() {
  auto message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

}  // namespace tern::daemon
