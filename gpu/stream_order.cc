#include "gpu/stream_order.h"

#include <utility>

namespace tern::gpu {

Result<std::unique_ptr<StreamOrder>> StreamOrder::create(const Driver& driver) {
  std::unique_ptr<StreamOrder> order(new StreamOrder(driver));
  if (auto done =
          driver.check(driver.api().make_event(&order->event_, kEventWithoutTime), "make an event");
      !done) {
    order->event_ = nullptr;
    return tl::unexpected(done.error());
  }
  return order;
}

StreamOrder::~StreamOrder() {
  if (event_ != nullptr) driver_.api().destroy_event(event_);
}

// A wait is for the record that came before it, so that one event serves all.
Status StreamOrder::follow(Stream later, Stream earlier) const {
  if (auto done = driver_.check(driver_.api().record_event(event_, earlier),
                                "record an event on a stream of the program");
      !done) {
    return done;
  }
  return driver_.check(driver_.api().wait_event(later, event_, 0),
                       "let a stream wait for the program's");
}

Status StreamOrder::call_behind(Stream stream, std::function<void()> done) const {
  auto call = std::make_unique<std::function<void()>>(std::move(done));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> owned(
        static_cast<std::function<void()>*>(argument));
    (*owned)();
  };
  auto enqueued = driver_.check(driver_.api().call_host(stream, run, call.get()),
                                "ask to be called behind a kernel");
  if (enqueued) static_cast<void>(call.release());
  return enqueued;
}

}  // namespace tern::gpu
