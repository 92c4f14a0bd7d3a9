#pragma once

#include <cstdint>
#include <memory>

#include "gpu/driver.h"

// Tern's own streams, the time that is spent on them, and the context in which all of it is.
namespace tern::gpu {

// The driver's context is current for the thread while this lives, whatever was before.
class ContextScope {
 public:
  // Requires: `driver` outlives it.
  explicit ContextScope(const Driver& driver) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  Status entered() const { return driver_.check(code_, "enter the CUDA context"); }

 private:
  const Driver& driver_;
  DriverCode code_;
};

class OwnStream {
 public:
  // A stream that waits for no other by itself, the program's default stream included: that one may
  // wait for a word which only this one brings about. It has the highest priority: its kernels are
  // short, others wait for them, and streams of one priority may share a queue of the device.
  // Requires: `driver` outlives it.
  static Result<std::unique_ptr<OwnStream>> create(const Driver& driver);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream get() const noexcept { return stream_; }
  // Waits until all that is on it is done.
  Status finish() const;
  // Whether it is. An error: the context is lost. False also where a capture forbids to ask.
  Result<bool> is_idle() const;

 private:
  explicit OwnStream(const Driver& driver) noexcept : driver_(driver) {}

  const Driver& driver_;
  Stream stream_ = nullptr;
};

// How long a stretch of a stream takes on the device.
class Stopwatch {
 public:
  // Requires: `driver` outlives it.
  static Result<std::unique_ptr<Stopwatch>> create(const Driver& driver);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  Status begin(Stream stream) const;
  Status end(Stream stream) const;
  // Of the last stretch; 0 if the driver does not know.
  std::uint64_t elapsed_ns() const noexcept;

 private:
  explicit Stopwatch(const Driver& driver) noexcept : driver_(driver) {}

  const Driver& driver_;
  Event begin_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace tern::gpu
