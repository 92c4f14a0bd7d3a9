#pragma once

// Between a daemon and what carries its frames: shows a test every frame that is sent, and knows
// whether the code that runs at present is a lane's, or that of the carrier below it.

#include <functional>
#include <memory>
#include <span>

#include "net/transport.h"

namespace tern::sim {

// Whether a lane runs on this thread, and not what carries its frames.
bool in_lane_code() noexcept;

// While it lives, it does, or does not.
class LaneCode {
 public:
  explicit LaneCode(bool runs) noexcept;
  ~LaneCode();
  LaneCode(const LaneCode&) = delete;
  LaneCode& operator=(const LaneCode&) = delete;

 private:
  bool before_;
};

// Both parts of a frame, as they are sent.
using Tap = std::function<void(const net::OutgoingFrame&)>;

class TappedTransport final : public net::Transport {
 public:
  // `tap` may be empty, now or later. Both outlive the transport.
  TappedTransport(net::Transport& inner, const Tap& tap, bool of_lane)
      : inner_(inner), tap_(tap), of_lane_(of_lane) {}

  const char* name() const noexcept override { return inner_.name(); }
  std::unique_ptr<net::Connection> connect(const net::Endpoint& endpoint,
                                           net::ConnectionSink& sink) override;
  std::unique_ptr<net::Connection> adopt(std::unique_ptr<net::Incoming> incoming,
                                         net::ConnectionSink& sink) override;
  int poll() override;
  void flush() override { inner_.flush(); }
  bool prepare_sleep() override { return inner_.prepare_sleep(); }
  Status remember_memory(const net::Memory& memory) override {
    return inner_.remember_memory(memory);
  }
  void forget_memory(const net::Memory& memory) override { inner_.forget_memory(memory); }

 private:
  net::Transport& inner_;
  const Tap& tap_;
  bool of_lane_;
};

}  // namespace tern::sim
