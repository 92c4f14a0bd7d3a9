#include "gpu/streams.h"

namespace tern::gpu {

ContextScope::ContextScope(const Driver& driver) noexcept
    : driver_(driver), code_(driver.api().push_context(driver.context())) {}

ContextScope::~ContextScope() {
  Context left = nullptr;
  if (code_ == kSuccess) driver_.api().pop_context(&left);
}

Result<std::unique_ptr<OwnStream>> OwnStream::create(const Driver& driver) {
  std::unique_ptr<OwnStream> own(new OwnStream(driver));
  int least = 0;
  int greatest = 0;
  auto made = driver.check(driver.api().priorities(&least, &greatest), "ask for priorities");
  if (made) {
    made = driver.check(driver.api().make_stream(&own->stream_, kStreamApart, greatest),
                        "make a stream");
  }
  if (!made) {
    own->stream_ = nullptr;
    return tl::unexpected(made.error());
  }
  return own;
}

OwnStream::~OwnStream() {
  if (stream_ != nullptr) driver_.api().destroy_stream(stream_);
}

Status OwnStream::finish() const {
  return driver_.check(driver_.api().finish_stream(stream_), "wait for a stream of Tern's");
}

Result<bool> OwnStream::is_idle() const {
  const DriverCode code = driver_.api().query_stream(stream_);
  if (code == kNotReady || (code >= kFirstOfCapture && code <= kLastOfCapture)) return false;
  if (auto asked = driver_.check(code, "go on, the CUDA context is lost"); !asked) {
    return tl::unexpected(asked.error());
  }
  return true;
}

Result<std::unique_ptr<Stopwatch>> Stopwatch::create(const Driver& driver) {
  std::unique_ptr<Stopwatch> watch(new Stopwatch(driver));
  for (Event* const event : {&watch->begin_, &watch->end_}) {
    auto made = driver.check(driver.api().make_event(event, kEventWithTime), "make an event");
    if (!made) {
      *event = nullptr;
      return tl::unexpected(made.error());
    }
  }
  return watch;
}

Stopwatch::~Stopwatch() {
  for (Event event : {begin_, end_}) {
    if (event != nullptr) driver_.api().destroy_event(event);
  }
}

Status Stopwatch::begin(Stream stream) const {
  return driver_.check(driver_.api().record_event(begin_, stream), "record an event");
}

Status Stopwatch::end(Stream stream) const {
  return driver_.check(driver_.api().record_event(end_, stream), "record an event");
}

std::uint64_t Stopwatch::elapsed_ns() const noexcept {
  float milliseconds = 0.0f;
  if (driver_.api().elapsed(&milliseconds, begin_, end_) != kSuccess || !(milliseconds > 0.0f)) {
    return 0;
  }
  return static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace tern::gpu
