#pragma once

// A link of a known rate between daemons of one machine.

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace tern::e2e {

// A port in front of another one. What goes through it passes at so many bytes per second each way,
// all connections together, and waits in the kernel's buffers of its sender, as behind a slow wire.
class SlowLink {
 public:
  explicit SlowLink(double bytes_per_s);
  ~SlowLink();
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  // 127.0.0.1 and the port. Its thread lives as long as this.
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Where connections lead that are made from now on. Before that, they are closed.
  void lead_to(int port) noexcept { target_ = port; }
  void set_rate(double bytes_per_s) noexcept { bytes_per_s_ = bytes_per_s; }

 private:
  // What has been read at one end and not yet written at the other.
  struct Flow {
    std::array<char, 16 << 10> bytes;
    std::size_t begin = 0, end = 0;
    bool empty() const noexcept { return begin == end; }
  };
  struct Connection {
    std::array<Fd, 2> ends;     // who has connected, and where it leads
    std::array<Flow, 2> flows;  // from that end
  };

  void run();
  void accept();
  void refill() noexcept;
  void wait();
  short events(const Connection& connection, std::size_t end) const noexcept;
  // False: it has ended.
  bool move(Connection& connection, std::size_t from) noexcept;

  Fd listener_;
  Fd stop_;  // readable: the thread ends
  int port_ = 0;
  std::atomic<int> target_{0};
  std::atomic<double> bytes_per_s_;
  // The thread's.
  std::list<Connection> connections_;
  std::vector<pollfd> polled_;
  std::array<double, 2> allowed_{};  // bytes that may pass now, by the end that they come from
  std::chrono::steady_clock::time_point refilled_;
  std::thread thread_;
};

}  // namespace tern::e2e
