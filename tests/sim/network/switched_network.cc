#include "switched_network.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tern::sim {

std::uint32_t SwitchedNetwork::host(const std::string& name) {
  const auto [found, is_new] =
      host_numbers_.emplace(name, static_cast<std::uint32_t>(hosts_.size()));
  if (is_new) set_cable(name, shape_.cable);
  return found->second;
}

void SwitchedNetwork::set_cable(const std::string& name, const HostCable& cable) {
  const auto found = host_numbers_.emplace(name, static_cast<std::uint32_t>(hosts_.size())).first;
  const Host made{cable, Line(cable.up_bytes_per_s, cable.delay_ns),
                  Line(cable.down_bytes_per_s, 0)};
  if (found->second == hosts_.size()) {
    hosts_.push_back(made);
  } else {
    hosts_[found->second] = made;
  }
}

// ---- Time ---------------------------------------------------------------------------------------

void SwitchedNetwork::run_until(std::uint64_t ns) {
  woke_ = false;
  while (!woke_ && events_.next_ns() <= ns) {
    now_ns_ = std::max(now_ns_, events_.next_ns());
    happen(events_.take());
  }
  if (!woke_) now_ns_ = std::max(now_ns_, ns);
}

void SwitchedNetwork::happen(const Event& event) {
  switch (event.what) {
    case Happens::comes_up:
      return come_up(event.index);
    case Happens::comes_down:
      return come_down(event.index);
    case Happens::timer:
      return on_timer(*pipes_[event.index], event.side);
    case Happens::opens:
      return open(*pipes_[event.index]);
    case Happens::ends:
      NetworkEnd& end = pipes_[event.index]->ends[event.side];
      end.told_end = true;
      return wake(end);
  }
}

void SwitchedNetwork::wake(NetworkEnd& end) {
  if (end.gone || !end.wake) return;
  woke_ = true;
  end.wake();
}

// ---- The switch ---------------------------------------------------------------------------------

void SwitchedNetwork::come_up(std::uint32_t from) {
  Line& line = hosts_[from].up;
  const Packet packet = line.pop();
  if (!line.empty()) events_.add(line.next_ns(), {Happens::comes_up, 0, from});
  const std::uint32_t to = pipes_[packet.pipe]->ends[packet.to].host;
  Line& port = hosts_[to].down;
  const std::uint64_t bytes = packet.wire_bytes();
  const bool fits =
      port.bytes() + bytes <= shape_.port_bytes && buffer_bytes_ + bytes <= shape_.buffer_bytes;
  if (!fits || (loses && loses(packet))) {
    ++counts_.dropped;
    return;
  }
  const bool was_idle = port.empty();
  port.push(packet, now_ns_);
  buffer_bytes_ += bytes;
  counts_.most_buffer_bytes = std::max(counts_.most_buffer_bytes, buffer_bytes_);
  if (was_idle) events_.add(port.next_ns(), {Happens::comes_down, 0, to});
}

void SwitchedNetwork::come_down(std::uint32_t to) {
  Line& port = hosts_[to].down;
  const Packet packet = port.pop();
  if (!port.empty()) events_.add(port.next_ns(), {Happens::comes_down, 0, to});
  buffer_bytes_ -= packet.wire_bytes();
  NetworkPipe& pipe = *pipes_[packet.pipe];
  const std::size_t side = packet.to;
  NetworkEnd& end = pipe.ends[side];
  if (packet.bytes > 0) {
    const bool had_wanted = end.receiver.arrived() >= end.wanted;
    end.receiver.take(packet.begin, packet.begin + packet.bytes, now_ns_);
    // A program that is gone reads nothing, but its kernel answers.
    if (end.gone) pipe.arriving(side).drop_to(end.receiver.arrived());
    const bool has_wanted = end.receiver.arrived() >= end.wanted;
    if ((has_wanted && !had_wanted) || pipe.has_ended(side)) wake(end);
  }
  end.sender.on_ack(packet.ack, packet.bytes == 0, now_ns_);
  pump(pipe, side);
}

// ---- The hosts' kernels -------------------------------------------------------------------------

void SwitchedNetwork::send(NetworkPipe& pipe, std::size_t side, Packet packet) {
  NetworkEnd& end = pipe.ends[side];
  packet.pipe = pipe.number;
  packet.to = static_cast<std::uint8_t>(1 - side);
  packet.ack = end.receiver.arrived();
  end.receiver.note_acknowledged(packet.bytes == 0);
  Line& line = hosts_[end.host].up;
  const bool was_idle = line.empty();
  line.push(packet, now_ns_);
  if (was_idle) events_.add(line.next_ns(), {Happens::comes_up, 0, end.host});
}

void SwitchedNetwork::pump(NetworkPipe& pipe, std::size_t side) {
  NetworkEnd& end = pipe.ends[side];
  if (pipe.state != NetworkPipe::State::open) return;
  if (!end.gone) end.queue.write(end.sender, end.stream, now_ns_);
  transmit(pipe, side);
  acknowledge_if_due(pipe, side);
  arm(pipe, side);
}

void SwitchedNetwork::transmit(NetworkPipe& pipe, std::size_t side) {
  RenoSender::Segment segment;
  while (pipe.ends[side].sender.next(now_ns_, segment)) {
    ++counts_.segments;
    if (segment.again) ++counts_.resent;
    Packet packet;
    packet.begin = segment.begin;
    packet.bytes = segment.bytes;
    packet.again = segment.again;
    send(pipe, side, packet);
  }
}

void SwitchedNetwork::acknowledge_if_due(NetworkPipe& pipe, std::size_t side) {
  if (pipe.ends[side].receiver.ack_due_ns() > now_ns_) return;
  ++counts_.pure_acks;
  send(pipe, side, {});
}

// An end's timers have one event, which is added anew where it comes too early.
void SwitchedNetwork::arm(NetworkPipe& pipe, std::size_t side) {
  NetworkEnd& end = pipe.ends[side];
  const std::uint64_t due = std::min(end.sender.deadline_ns(), end.receiver.ack_due_ns());
  if (due >= end.timer_ns) return;
  end.timer_ns = due;
  events_.add(due, {Happens::timer, static_cast<std::uint8_t>(side), pipe.number});
}

void SwitchedNetwork::on_timer(NetworkPipe& pipe, std::size_t side) {
  NetworkEnd& end = pipe.ends[side];
  if (now_ns_ < end.timer_ns) return;  // of a later one, which an earlier one has made idle
  end.timer_ns = ~std::uint64_t{0};
  end.sender.on_time(now_ns_);
  pump(pipe, side);
}

// ---- Connections --------------------------------------------------------------------------------

void SwitchedNetwork::listen(const net::Endpoint& at, Listener listener) {
  TERN_CHECK(listeners_.emplace(at, std::move(listener)).second);
}

std::shared_ptr<NetworkPipe> SwitchedNetwork::connect(const net::Endpoint& from,
                                                      const net::Endpoint& to) {
  auto pipe = std::make_shared<NetworkPipe>();
  pipe->number = static_cast<std::uint32_t>(pipes_.size());
  pipe->ends[0].at = from;
  pipe->ends[1].at = to;
  std::uint64_t round_trip_ns = 0;
  for (NetworkEnd& end : pipe->ends) {
    end.host = host(end.at.host);
    round_trip_ns += hosts_[end.host].cable.delay_ns;
  }
  for (NetworkEnd& end : pipe->ends) end.sender.on_open(round_trip_ns);
  pipes_.push_back(pipe);
  events_.add(now_ns_ + round_trip_ns, {Happens::opens, 0, pipe->number});
  return pipe;
}

void SwitchedNetwork::open(NetworkPipe& pipe) {
  if (pipe.ends[0].gone) return;
  const auto listener = listeners_.find(pipe.ends[1].at);
  const bool is_heard = listener != listeners_.end();
  pipe.state = is_heard ? NetworkPipe::State::open : NetworkPipe::State::refused;
  if (is_heard) listener->second(pipes_[pipe.number]);
  pump(pipe, 0);
  wake(pipe.ends[0]);
}

void SwitchedNetwork::close(NetworkPipe& pipe, std::size_t side) {
  NetworkEnd& end = pipe.ends[side];
  if (end.gone) return;
  pump(pipe, side);
  end.gone = true;
  end.wake = nullptr;
  end.queue.forget();
  pipe.arriving(side).drop_to(end.receiver.arrived());
  const std::uint64_t delay_ns = hosts_[end.host].cable.delay_ns;
  events_.add(now_ns_ + delay_ns,
              {Happens::ends, static_cast<std::uint8_t>(1 - side), pipe.number});
}

// ---- What has happened --------------------------------------------------------------------------

NetworkCounts SwitchedNetwork::counts() const {
  NetworkCounts counts = counts_;
  for (const auto& pipe : pipes_) {
    for (const NetworkEnd& end : pipe->ends) {
      counts.fast_retransmits += end.sender.fast_retransmits();
      counts.timeouts += end.sender.timeouts();
    }
  }
  counts.fast_retransmits -= before_.fast_retransmits;
  counts.timeouts -= before_.timeouts;
  for (const Host& host : hosts_) {
    counts.longest_port_bytes = std::max(counts.longest_port_bytes, host.down.longest_bytes());
  }
  return counts;
}

void SwitchedNetwork::forget_counts() {
  before_ = {};
  counts_ = {};
  before_ = counts();
  for (Host& host : hosts_) {
    host.up.forget_counts();
    host.down.forget_counts();
  }
  counts_.most_buffer_bytes = buffer_bytes_;
}

}  // namespace tern::sim
