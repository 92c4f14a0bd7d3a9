#pragma once

// A switch and the hosts on it, in virtual time. A host has one cable to the switch, each direction
// of which is a line with a rate: what its kernel sends waits for the line up, what others send it
// waits at the switch for the line down. All queues of the switch share one buffer; a packet that
// finds it full, or its port at its limit, is dropped. Connections are TCP (RenoSender,
// SegmentReceiver), whose packets have the headers of Ethernet, IP and TCP.
//
// What happens is a heap of events: the arrival of each line's oldest packet, and timers. Nothing
// else is looked at, so that a run costs its packets, however many hosts there are.
//
// Coarse: the line up takes packets in the order in which connections made them and drops none
// (Linux has at least a millisecond's worth of one connection below TCP, and may have a fair queue
// there); a write to the kernel takes no time, and follows the acknowledgement that made room for
// it at once; the opening of a connection and its end take a round trip and a way, and no line.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "event_heap.h"
#include "line.h"
#include "net/transport.h"
#include "network_pipe.h"

namespace tern::sim {

struct HostCable {
  std::uint64_t up_bytes_per_s = 125'000'000;
  std::uint64_t down_bytes_per_s = 125'000'000;
  std::uint64_t delay_ns = 20'000;  // from this host to any other
};

struct SwitchShape {
  HostCable cable;                               // of hosts of which nothing else is said
  std::uint64_t buffer_bytes = 256 << 10;        // of all ports together
  std::uint64_t port_bytes = ~std::uint64_t{0};  // at most so much of the buffer for one
};

struct NetworkCounts {
  std::uint64_t segments = 0;  // with bytes
  std::uint64_t pure_acks = 0;
  std::uint64_t dropped = 0;  // packets of any kind
  std::uint64_t resent = 0;   // segments
  std::uint64_t fast_retransmits = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t longest_port_bytes = 0;
  std::uint64_t most_buffer_bytes = 0;

  friend bool operator==(const NetworkCounts&, const NetworkCounts&) = default;
};

class SwitchedNetwork {
 public:
  explicit SwitchedNetwork(const SwitchShape& shape) : shape_(shape) {}
  SwitchedNetwork(const SwitchedNetwork&) = delete;
  SwitchedNetwork& operator=(const SwitchedNetwork&) = delete;

  // REQUIRES: nothing has been sent by or to it.
  void set_cable(const std::string& host, const HostCable& cable);

  // ---- Time ----
  std::uint64_t now_ns() const noexcept { return now_ns_; }
  std::uint64_t next_ns() const noexcept { return events_.next_ns(); }
  // Until then, or until somebody has been woken.
  void run_until(std::uint64_t ns);

  // ---- Connections ----
  // An acceptor at an address: takes connections that have opened.
  using Listener = std::function<void(const std::shared_ptr<NetworkPipe>&)>;
  void listen(const net::Endpoint& at, Listener listener);
  void stop_listening(const net::Endpoint& at) { listeners_.erase(at); }
  // Opens, or fails, after a round trip; then its end wakes.
  std::shared_ptr<NetworkPipe> connect(const net::Endpoint& from, const net::Endpoint& to);
  // What the program at an end has sent, or the room that it may take, has changed.
  void pump(NetworkPipe& pipe, std::size_t side);
  // The program at an end closes it: what its kernel has taken still leaves.
  void close(NetworkPipe& pipe, std::size_t side);

  // ---- What has happened ----
  // Since forget_counts().
  NetworkCounts counts() const;
  void forget_counts();
  std::uint64_t sent_up_bytes(const std::string& host) { return host_of(host).up.sent_bytes(); }
  std::uint64_t sent_down_bytes(const std::string& host) { return host_of(host).down.sent_bytes(); }
  // Packets that it chooses are lost on their way up. May be empty.
  std::function<bool(const Packet&)> loses;

 private:
  struct Host {
    HostCable cable;
    Line up, down;
  };
  enum class Happens : std::uint8_t { comes_up, comes_down, timer, opens, ends };
  struct Event {
    Happens what;
    std::uint8_t side;
    std::uint32_t index;  // of a host, or of a pipe
  };

  std::uint32_t host(const std::string& name);
  Host& host_of(const std::string& name) { return hosts_[host(name)]; }
  void happen(const Event& event);
  void come_up(std::uint32_t from);
  void come_down(std::uint32_t to);
  void open(NetworkPipe& pipe);
  void send(NetworkPipe& pipe, std::size_t side, Packet packet);
  void transmit(NetworkPipe& pipe, std::size_t side);
  void acknowledge_if_due(NetworkPipe& pipe, std::size_t side);
  void arm(NetworkPipe& pipe, std::size_t side);
  void on_timer(NetworkPipe& pipe, std::size_t side);
  void wake(NetworkEnd& end);

  SwitchShape shape_;
  std::uint64_t now_ns_ = 1;
  bool woke_ = false;
  EventHeap<Event> events_;
  std::deque<Host> hosts_;
  std::map<std::string, std::uint32_t> host_numbers_;
  std::uint64_t buffer_bytes_ = 0;
  std::map<net::Endpoint, Listener> listeners_;
  // All that there ever were: packets name them by number.
  std::vector<std::shared_ptr<NetworkPipe>> pipes_;
  NetworkCounts counts_;
  NetworkCounts before_;  // what senders had counted at forget_counts()
};

}  // namespace tern::sim
