#pragma once

#include <functional>
#include <memory>

#include "gpu/driver.h"

// The order between the program's streams and Tern's: kernels run behind the program's work on a
// stream of few multiprocessors, and a thread of the driver says when they are done.
namespace tern::gpu {

class StreamOrder {
 public:
  // Requires: `driver` outlives it.
  static Result<std::unique_ptr<StreamOrder>> create(const Driver& driver);
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // What is enqueued on `later` from now on runs behind what is on `earlier` now.
  Status follow(Stream later, Stream earlier) const;

  // Calls `done` on a thread of the driver when all that is on the stream now is done. It must not
  // call the driver. After an error of the context it is never called, and leaks.
  Status call_behind(Stream stream, std::function<void()> done) const;

 private:
  explicit StreamOrder(const Driver& driver) noexcept : driver_(driver) {}

  const Driver& driver_;
  Event event_ = nullptr;
};

}  // namespace tern::gpu
