#include "net/loopback.h"

#include "base/check.h"
#include "net/frame_receiver.h"
#include "net/loopback_state.h"

namespace tern::net {

LoopbackNetwork::LoopbackNetwork() : impl_(std::make_unique<Impl>()) {}
LoopbackNetwork::~LoopbackNetwork() = default;

void LoopbackNetwork::kill(const Endpoint& endpoint) {
  impl_->killed.insert(endpoint);
  for (const auto& weak : impl_->pipes) {
    if (auto pipe = weak.lock(); pipe && impl_->is_killed(*pipe)) {
      pipe->killed = true;
      for (auto& end : pipe->ends) end.arriving.clear();
    }
  }
}

void LoopbackNetwork::revive(const Endpoint& endpoint) { impl_->killed.erase(endpoint); }

void LoopbackNetwork::set_partitioned(const Endpoint& a, const Endpoint& b, bool partitioned) {
  const std::pair<Endpoint, Endpoint> key = std::minmax(a, b);
  if (partitioned) {
    impl_->partitions.insert(key);
  } else {
    impl_->partitions.erase(key);
  }
}

// One side of a pipe, as its transport sees it. Kept alive by the transport while it delivers, so
// that the connection may be destroyed in a callback.
struct LoopbackTransport::Half {
  Half(LoopbackNetwork::Impl& network_in, std::shared_ptr<LoopbackPipe> pipe_in, int side_in,
       ConnectionSink& sink_in)
      : network(network_in), pipe(std::move(pipe_in)), side(side_in), sink(&sink_in) {}

  LoopbackNetwork::Impl& network;
  std::shared_ptr<LoopbackPipe> pipe;
  int side;
  Connection* connection = nullptr;  // null: destroyed
  ConnectionSink* sink;
  bool open = false;
  bool closed = false;  // on_closed has been called
  FrameReceiver receiver;
  bool mid_frame = false;
  std::uint64_t received_bytes = 0;

  LoopbackPipe::End& here() { return pipe->ends[side]; }
  LoopbackPipe::End& there() { return pipe->ends[1 - side]; }

  int deliver_one();
  void begin();
  void deliver(const LoopbackBytes& bytes);
  int close(Errc reason, const char* text) {
    closed = true;
    here().gone = true;
    sink->on_closed(*connection, reason, text);
    return 1;
  }
};

namespace {

class LoopbackConnection final : public Connection {
 public:
  explicit LoopbackConnection(std::shared_ptr<LoopbackTransport::Half> half)
      : half_(std::move(half)) {
    half_->connection = this;
  }
  ~LoopbackConnection() override {
    half_->connection = nullptr;
    half_->sink = nullptr;
    half_->here().gone = true;
  }
  void send(const OutgoingFrame& frame) override {
    if (half_->closed || half_->pipe->killed || half_->there().gone) return;
    LoopbackBytes bytes = half_->network.take_bytes();
    bytes.reserve(frame.head.size() + frame.body.size());
    bytes.insert(bytes.end(), frame.head.begin(), frame.head.end());
    bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
    half_->there().arriving.push_back(std::move(bytes));
  }
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t received_bytes() const override { return half_->received_bytes; }

 private:
  std::shared_ptr<LoopbackTransport::Half> half_;
};

}  // namespace

void LoopbackTransport::Half::begin() {
  const auto acceptor = network.acceptors.find(pipe->ends[1].at);
  if (acceptor == network.acceptors.end()) {
    close(Errc::unreachable, "connection refused");
    return;
  }
  LoopbackAcceptor::Impl& there_listens = *acceptor->second;
  there_listens.unfinished.push_back(
      {pipe, there_listens.clock.now_ns() + there_listens.settings.hello_timeout_ns});
  open = true;
  sink->on_open(*connection);
}

int LoopbackTransport::Half::deliver_one() {
  if (sink == nullptr || closed) return 0;
  if (network.is_killed(*pipe)) {
    return open ? close(Errc::io_error, "connection reset")
                : close(Errc::unreachable, "connection refused");
  }
  if (network.is_partitioned(*pipe)) return 0;
  if (!open) {
    begin();
    return 1;
  }
  if (!here().arriving.empty()) {
    LoopbackBytes bytes = std::move(here().arriving.front());
    here().arriving.pop_front();
    received_bytes += bytes.size();
    deliver(bytes);
    network.give_back(std::move(bytes));
    return 1;
  }
  return there().gone ? close(Errc::io_error, "the peer closed the connection") : 0;
}

void LoopbackTransport::Half::deliver(const LoopbackBytes& bytes) {
  // The frame before this one was cut off in its middle, so these bytes cannot be its rest.
  if (mid_frame) {
    close(Errc::corrupt_data, "the payload's bytes do not end where the header said");
    return;
  }
  const wire::ParseError error = receiver.read_header(bytes);
  if (error == wire::ParseError::too_short) {
    mid_frame = true;
    return;
  }
  if (error != wire::ParseError::none) {
    close(Errc::corrupt_data, wire::parse_error_text(error));
    return;
  }
  const bool accepted = receiver.announce(*sink, *connection);
  if (sink == nullptr) return;
  if (!accepted) {
    close(Errc::corrupt_data, FrameReceiver::kRefused);
    return;
  }
  const auto payload = std::span<const std::byte>(bytes).subspan(wire::kFrameHeaderBytes);
  const std::size_t taken = receiver.copy_in(payload);
  // Too few bytes, or more than the header said: what follows is no frame.
  mid_frame = receiver.missing_bytes() > 0 || payload.size() > taken;
  if (receiver.missing_bytes() == 0) receiver.deliver(*sink, *connection);
}

LoopbackTransport::LoopbackTransport(LoopbackNetwork& network, Endpoint self)
    : network_(network.impl()), self_(std::move(self)) {}

LoopbackTransport::~LoopbackTransport() {
  for (const auto& half : halves_) TERN_CHECK(half->connection == nullptr);
}

std::unique_ptr<Connection> LoopbackTransport::connect(const Endpoint& endpoint,
                                                       ConnectionSink& sink) {
  auto pipe = std::make_shared<LoopbackPipe>();
  pipe->ends[0].at = self_;
  pipe->ends[1].at = endpoint;
  std::erase_if(network_.pipes, [](const auto& weak) { return weak.expired(); });
  network_.pipes.push_back(pipe);
  auto half = std::make_shared<Half>(network_, std::move(pipe), 0, sink);
  halves_.push_back(half);
  return std::make_unique<LoopbackConnection>(std::move(half));
}

std::unique_ptr<Connection> LoopbackTransport::adopt(std::unique_ptr<Incoming> incoming,
                                                     ConnectionSink& sink) {
  auto* mine = dynamic_cast<LoopbackIncoming*>(incoming.get());
  TERN_CHECK(mine != nullptr);
  auto half = std::make_shared<Half>(network_, std::move(mine->pipe), 1, sink);
  half->open = true;
  halves_.push_back(half);
  return std::make_unique<LoopbackConnection>(std::move(half));
}

int LoopbackTransport::poll() {
  std::erase_if(halves_, [](const auto& half) { return half->connection == nullptr; });
  // One frame of each connection per round, so that a busy one does not starve the others.
  // Callbacks may append to halves_.
  int delivered = 0;
  std::size_t idle = 0;
  while (delivered < kFramesPerPoll && idle < halves_.size()) {
    next_ = next_ < halves_.size() ? next_ : 0;
    const std::shared_ptr<Half> half = halves_[next_++];
    const int count = half->deliver_one();
    delivered += count;
    idle = count > 0 ? 0 : idle + 1;
  }
  return delivered;
}

}  // namespace tern::net
