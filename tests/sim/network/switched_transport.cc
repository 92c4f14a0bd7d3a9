#include "switched_transport.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "net/frame_receiver.h"

namespace tern::sim {

// One side of a pipe, as its transport sees it. Kept alive by the transport while it delivers, so
// that the connection may be destroyed in a callback.
struct SwitchedTransport::Half {
  Half(SwitchedNetwork& network_in, std::shared_ptr<NetworkPipe> pipe_in, std::size_t side_in,
       net::ConnectionSink& sink_in)
      : network(network_in), pipe(std::move(pipe_in)), side(side_in), sink(&sink_in) {}

  SwitchedNetwork& network;
  std::shared_ptr<NetworkPipe> pipe;
  std::size_t side;
  net::Connection* connection = nullptr;  // null: destroyed
  net::ConnectionSink* sink;
  bool is_open = false;
  bool is_closed = false;  // on_closed has been called
  bool is_ready = false;   // the transport looks at it
  net::FrameReceiver receiver;

  NetworkEnd& here() { return pipe->ends[side]; }

  int deliver_one();
  int begin();
  int begin_frame();
  int take_payload();
  std::uint64_t take(std::uint64_t bytes);
  void want(std::uint64_t bytes) { here().wanted = pipe->arriving(side).begin() + bytes; }
  int close(Errc reason, const char* text) {
    is_closed = true;
    network.close(*pipe, side);
    sink->on_closed(*connection, reason, text);
    return 1;
  }
};

namespace {

class SwitchedConnection final : public net::Connection {
 public:
  SwitchedConnection(SwitchedNetwork& network, std::shared_ptr<SwitchedTransport::Half> half)
      : network_(network), half_(std::move(half)) {
    half_->connection = this;
  }
  ~SwitchedConnection() override {
    half_->connection = nullptr;
    half_->sink = nullptr;
    network_.close(*half_->pipe, half_->side);
  }
  void send(const net::OutgoingFrame& frame) override {
    if (half_->is_closed) return;
    here().queue.push(frame);
    network_.pump(*half_->pipe, half_->side);
  }
  std::size_t queued_bytes() const override { return here().queue.queued_bytes(); }
  std::uint64_t received_bytes() const override { return here().receiver.arrived(); }
  // It leaves to its user what the carrier's rate is.
  net::DeliveryRate delivery_rate() const override {
    const RenoSender& sender = here().sender;
    net::DeliveryRate rate;
    rate.round_trip_ns = sender.shortest_round_trip_ns();
    rate.acked_bytes = sender.acked();
    rate.busy_ns = sender.busy_ns(network_.now_ns());
    return rate;
  }
  void bound_queue(const net::QueueBound& bound) override {
    here().queue.bound(bound);
    network_.pump(*half_->pipe, half_->side);
  }

 private:
  NetworkEnd& here() const { return half_->here(); }

  SwitchedNetwork& network_;
  std::shared_ptr<SwitchedTransport::Half> half_;
};

}  // namespace

int SwitchedTransport::Half::deliver_one() {
  if (sink == nullptr || is_closed) return 0;
  if (!is_open) return begin();
  if (receiver.is_inside()) return take_payload();
  if (pipe->unread(side) >= wire::kFrameHeaderBytes) return begin_frame();
  want(wire::kFrameHeaderBytes);
  if (!pipe->has_ended(side)) return 0;
  return pipe->unread(side) > 0 ? close(Errc::corrupt_data, "the connection ended inside a frame")
                                : close(Errc::io_error, "the peer closed the connection");
}

int SwitchedTransport::Half::begin() {
  if (pipe->state == NetworkPipe::State::opening) return 0;
  if (pipe->state == NetworkPipe::State::refused) {
    return close(Errc::unreachable, "connection refused");
  }
  is_open = true;
  want(wire::kFrameHeaderBytes);
  sink->on_open(*connection);
  return 1;
}

int SwitchedTransport::Half::begin_frame() {
  std::array<std::byte, wire::kFrameHeaderBytes> header;
  std::size_t copied = 0;
  ByteRing& arriving = pipe->arriving(side);
  for (const auto part : arriving.read(arriving.begin(), header.size())) {
    std::copy(part.begin(), part.end(), header.begin() + static_cast<std::ptrdiff_t>(copied));
    copied += part.size();
  }
  arriving.drop_to(arriving.begin() + header.size());
  const wire::ParseError error = receiver.read_header(header);
  if (error != wire::ParseError::none) {
    return close(Errc::corrupt_data, wire::parse_error_text(error));
  }
  want(receiver.header().payload_bytes);
  const bool accepted = receiver.announce(*sink, *connection);
  if (sink == nullptr) return 1;
  return accepted ? 1 : close(Errc::corrupt_data, net::FrameReceiver::kRefused);
}

int SwitchedTransport::Half::take_payload() {
  const std::uint64_t taken =
      take(std::min<std::uint64_t>(pipe->unread(side), receiver.missing_bytes()));
  if (receiver.missing_bytes() > 0) {
    if (!pipe->has_ended(side)) return taken > 0 ? 1 : 0;
    return close(Errc::corrupt_data, "the connection ended inside a frame");
  }
  want(wire::kFrameHeaderBytes);
  receiver.deliver(*sink, *connection);
  return 1;
}

std::uint64_t SwitchedTransport::Half::take(std::uint64_t bytes) {
  ByteRing& arriving = pipe->arriving(side);
  for (const auto part : arriving.read(arriving.begin(), bytes)) receiver.copy_in(part);
  arriving.drop_to(arriving.begin() + bytes);
  return bytes;
}

// ---- The transport ------------------------------------------------------------------------------

SwitchedTransport::SwitchedTransport(SwitchedNetwork& network, net::Endpoint self,
                                     std::function<void()> wake)
    : network_(network), self_(std::move(self)), wake_(std::move(wake)) {}

SwitchedTransport::~SwitchedTransport() {
  for (const auto& half : ready_) TERN_CHECK(half->connection == nullptr);
}

void SwitchedTransport::note_ready(const std::shared_ptr<Half>& half) {
  if (std::exchange(half->is_ready, true)) return;
  ready_.push_back(half);
  if (wake_) wake_();
}

// The pipe forgets it when the half is closed.
void SwitchedTransport::watch(const std::shared_ptr<Half>& half) {
  half->here().wake = [this, weak = std::weak_ptr(half)] {
    if (const auto known = weak.lock()) note_ready(known);
  };
}

std::unique_ptr<net::Connection> SwitchedTransport::connect(const net::Endpoint& endpoint,
                                                            net::ConnectionSink& sink) {
  auto half = std::make_shared<Half>(network_, network_.connect(self_, endpoint), 0, sink);
  watch(half);
  return std::make_unique<SwitchedConnection>(network_, std::move(half));
}

std::unique_ptr<net::Connection> SwitchedTransport::adopt(std::unique_ptr<net::Incoming> incoming,
                                                          net::ConnectionSink& sink) {
  auto* mine = dynamic_cast<SwitchedIncoming*>(incoming.get());
  TERN_CHECK(mine != nullptr);
  auto half = std::make_shared<Half>(network_, std::exchange(mine->pipe, nullptr), 1, sink);
  half->is_open = true;
  watch(half);
  // Bytes may have come behind the hello.
  note_ready(half);
  return std::make_unique<SwitchedConnection>(network_, std::move(half));
}

int SwitchedTransport::poll() {
  int delivered = 0;
  // One frame of each connection in a round, so that a busy one does not starve the others.
  // Callbacks may append.
  for (std::size_t i = 0; i < ready_.size() && delivered < kFramesPerPoll;) {
    const std::shared_ptr<Half> half = ready_[i];
    const int count = half->deliver_one();
    delivered += count;
    if (count > 0) {
      ++i;
      if (i == ready_.size()) i = 0;
      continue;
    }
    half->is_ready = false;
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    if (i == ready_.size()) i = 0;
  }
  return delivered;
}

}  // namespace tern::sim
