#pragma once

// Frames over RDMA, beside a transport that opens connections and carries their set-up: each
// connection begins on it, is moved to a queue pair where both ends can, and stays on it where one
// cannot. A queue pair that fails closes the connection; the link above opens another, which stays
// on the other transport until some time has passed, and is then moved again.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/event_loop.h"
#include "net/transport.h"
#include "rdma/data_path.h"
#include "rdma/device.h"
#include "rdma/lane_memory.h"
#include "rdma/peer_troubles.h"
#include "rdma/rdma_settings.h"

namespace tern::rdma {

class RdmaStream;

struct RdmaCounters {
  std::uint64_t opened = 0;     // connections that were moved to a queue pair
  std::uint64_t declined = 0;   // set-ups that ended on the other transport
  std::uint64_t failovers = 0;  // queue pairs that failed under frames
};

class RdmaTransport final : public net::Transport {
 public:
  // `control` carries the connections; it, the loop and the clock outlive the transport.
  RdmaTransport(net::Transport& control, net::EventLoop& loop, const Clock& clock,
                const RdmaSettings& settings);
  ~RdmaTransport() override;

  const char* name() const noexcept override { return "rdma"; }
  std::unique_ptr<net::Connection> connect(const net::Endpoint& endpoint,
                                           net::ConnectionSink& sink) override;
  std::unique_ptr<net::Connection> adopt(std::unique_ptr<net::Incoming> incoming,
                                         net::ConnectionSink& sink) override;
  int poll() override;
  void flush() override { control_.flush(); }
  bool prepare_sleep() override;
  Status remember_memory(const net::Memory& memory) override;
  void forget_memory(const net::Memory& memory) override;

  const RdmaCounters& counters() const noexcept { return counters_; }
  // Of the queue pairs that exist now, together.
  DataPathCounters data_path_counters() const noexcept;

  // ---- For RdmaStream
  // The device, opened now if it is not. Null: `why` says why there is none.
  std::shared_ptr<Device> device(std::string& why);
  // There was one, or there is one that cannot be used for now: its port is down, say.
  bool may_have_device() const { return may_have_device_; }
  Choice choice_for(std::string_view host) const;
  net::Transport& control() { return control_; }
  const Clock& clock() const { return clock_; }
  const RdmaSettings& settings() const { return settings_; }
  LaneMemory& memory() { return memory_; }
  RdmaCounters& mutable_counters() { return counters_; }
  PeerTroubles& troubles() { return troubles_; }
  // Waits until what was sent last has arrived: no longer, for all connections that end in a turn,
  // than a turn may be held up.
  enum class Drained : std::uint8_t {
    all,
    not_all,
    had_no_time,  // others had it, or memory is registered in a later turn
  };
  Drained drain(DataPath& path);

 private:
  int poll_streams();
  Status watch_device();
  void drop_device();
  int check_device();
  std::unique_ptr<net::Connection> hold(std::shared_ptr<RdmaStream> stream);

  net::Transport& control_;
  net::EventLoop& loop_;
  const Clock& clock_;
  RdmaSettings settings_;
  LaneMemory memory_;
  RdmaCounters counters_;
  PeerTroubles troubles_;

  std::shared_ptr<Device> device_;
  bool may_have_device_ = false;
  std::string device_trouble_;
  std::uint64_t next_open_ns_ = 0;
  std::uint64_t next_check_ns_ = 0;
  bool device_event_ = false;  // to be read
  std::vector<Device::Broken> broken_;
  std::uint64_t event_watch_ = 0;
  std::uint64_t completion_watch_ = 0;

  std::vector<std::shared_ptr<RdmaStream>> streams_;
  std::size_t next_stream_ = 0;        // whose turn it is
  std::uint64_t drain_left_ns_ = 0;    // of this turn
  std::uint64_t next_control_ns_ = 0;  // when the control transport has its turn, at the latest
  bool control_due_ = false;           // before anybody sleeps
  bool had_control_ = false;           // in the last poll()
};

}  // namespace tern::rdma
