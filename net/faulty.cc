#include "net/faulty.h"

#include <algorithm>
#include <deque>

#include "base/check.h"

namespace tern::net {

class FaultyConnection final : public Connection, private ConnectionSink {
 public:
  FaultyConnection(FaultyTransport& transport, ConnectionSink& sink)
      : transport_(transport), sink_(sink) {}
  ~FaultyConnection() override {
    std::replace(transport_.connections_.begin(), transport_.connections_.end(), this,
                 static_cast<FaultyConnection*>(nullptr));
  }

  void begin(const Endpoint& endpoint) {
    target_ = endpoint;
    if (!transport_.partitioned_) inner_ = transport_.inner_.connect(target_, *this);
  }
  void begin(std::unique_ptr<Incoming> incoming) {
    inner_ = transport_.inner_.adopt(std::move(incoming), *this);
  }

  void send(const OutgoingFrame& frame) override;
  // Everything is copied, so the sender's memory is never read later.
  std::size_t queued_bytes() const override { return 0; }
  std::uint64_t received_bytes() const override { return inner_ ? inner_->received_bytes() : 0; }
  DeliveryRate delivery_rate() const override {
    return inner_ ? inner_->delivery_rate() : DeliveryRate{};
  }
  Carriage carriage() const override { return inner_ ? inner_->carriage() : Carriage{}; }
  void bound_queue(const QueueBound& bound) override {
    if (inner_) inner_->bound_queue(bound);
  }
  void hold_reading(bool hold) override {
    if (inner_) inner_->hold_reading(hold);
  }

  // Passes on what is due. Calls no sink.
  int pump(std::uint64_t now);
  // Tells the sink of a cut that was made here; the connection may be destroyed by that.
  int report();
  void cut() {
    inner_.reset();
    waiting_.clear();
    sent_.clear();
    cut_ = true;
  }
  std::uint64_t next_deadline_ns() const {
    return waiting_.empty() ? ~std::uint64_t{0} : waiting_.front().release_ns;
  }

 private:
  using Bytes = std::vector<std::byte>;
  struct Waiting {
    Bytes bytes;
    std::uint64_t release_ns;
    bool late;  // the next frame overtakes it
  };
  struct Sent {
    Bytes bytes;
    std::uint64_t end_offset;
  };

  void enqueue(Bytes bytes, std::uint64_t now);
  void pass_on(Bytes bytes);
  void flip(Bytes& bytes, std::size_t first, std::size_t count) {
    const std::uint64_t bit = transport_.draw(8 * count);
    bytes[first + bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }

  void on_open(Connection&) override { sink_.on_open(*this); }
  bool on_header(Connection&, const wire::FrameHeader& header, PayloadPlace& place) override {
    return sink_.on_header(*this, header, place);
  }
  void on_frame(Connection&, const wire::FrameHeader& header, const PayloadPlace& place,
                bool payload_valid) override {
    sink_.on_frame(*this, header, place, payload_valid);
  }
  void on_closed(Connection&, Errc reason, const char* text) override {
    sink_.on_closed(*this, reason, text);
  }

  FaultyTransport& transport_;
  ConnectionSink& sink_;
  Endpoint target_;
  bool cut_ = false;
  bool stalled_ = false;
  bool reported_ = false;
  std::deque<Waiting> waiting_;
  // Given to the inner connection, which reads them until it has taken them.
  std::deque<Sent> sent_;
  std::uint64_t offset_ = 0;
  std::unique_ptr<Connection> inner_;  // null: cut, or waiting for the end of a partition
};

void FaultyConnection::send(const OutgoingFrame& frame) {
  if (cut_ || stalled_) return;
  const FaultSettings& rates = transport_.settings_;
  FaultCounters& counters = transport_.counters_;
  const std::uint64_t now = transport_.clock_.now_ns();
  ++counters.frames;
  if (transport_.chance(rates.cut)) {
    ++counters.cuts;
    cut();
    return;
  }
  if (transport_.chance(rates.drop)) {
    ++counters.dropped;
    return;
  }
  Bytes bytes(frame.head.begin(), frame.head.end());
  bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
  if (transport_.chance(rates.corrupt_header)) {
    ++counters.headers_corrupted;
    flip(bytes, 0, std::min(bytes.size(), wire::kFrameHeaderBytes));
  }
  if (bytes.size() > wire::kFrameHeaderBytes && transport_.chance(rates.corrupt_payload)) {
    ++counters.payloads_corrupted;
    flip(bytes, wire::kFrameHeaderBytes, bytes.size() - wire::kFrameHeaderBytes);
  }
  const bool truncated = transport_.chance(rates.truncate);
  if (truncated || transport_.chance(rates.stall)) {
    ++counters.truncated;
    bytes.resize(1 + transport_.draw(bytes.size() - 1));
    const bool in_order = waiting_.empty() && !transport_.partitioned_;
    if (in_order && inner_) pass_on(std::move(bytes));
    stalled_ = !truncated;
    if (truncated) cut();
    return;
  }
  if (transport_.chance(rates.duplicate)) {
    ++counters.duplicated;
    enqueue(bytes, now);
  }
  enqueue(std::move(bytes), now);
}

void FaultyConnection::enqueue(Bytes bytes, std::uint64_t now) {
  const FaultSettings& rates = transport_.settings_;
  Waiting frame{std::move(bytes), now, false};
  if (transport_.chance(rates.delay)) {
    ++transport_.counters_.delayed;
    const std::uint64_t range = rates.delay_max_ns - rates.delay_min_ns + 1;
    frame.release_ns += rates.delay_min_ns + transport_.draw(range);
  }
  if (transport_.chance(rates.reorder)) {
    ++transport_.counters_.reordered;
    frame.late = true;
    // If nothing follows it goes on its own.
    frame.release_ns += rates.delay_max_ns;
  }
  if (!waiting_.empty() && waiting_.back().late) {
    Waiting overtaken = std::move(waiting_.back());
    waiting_.pop_back();
    overtaken.late = false;
    overtaken.release_ns = frame.release_ns;
    waiting_.push_back(std::move(frame));
    waiting_.push_back(std::move(overtaken));
  } else {
    waiting_.push_back(std::move(frame));
  }
  pump(now);
}

void FaultyConnection::pass_on(Bytes bytes) {
  offset_ += bytes.size();
  sent_.push_back({std::move(bytes), offset_});
  inner_->send({sent_.back().bytes, {}});
}

int FaultyConnection::pump(std::uint64_t now) {
  if (cut_ || transport_.partitioned_) return 0;
  if (!inner_) {
    inner_ = transport_.inner_.connect(target_, *this);
    return 1;
  }
  while (!sent_.empty() && sent_.front().end_offset <= offset_ - inner_->queued_bytes()) {
    sent_.pop_front();
  }
  int count = 0;
  for (; !waiting_.empty() && waiting_.front().release_ns <= now; ++count) {
    Bytes bytes = std::move(waiting_.front().bytes);
    waiting_.pop_front();
    pass_on(std::move(bytes));
  }
  return count;
}

int FaultyConnection::report() {
  if (!cut_ || reported_) return 0;
  reported_ = true;
  sink_.on_closed(*this, Errc::io_error, "cut by an injected fault");
  return 1;
}

FaultyTransport::FaultyTransport(Transport& inner, const Clock& clock,
                                 const FaultSettings& settings, std::uint64_t seed)
    : inner_(inner), clock_(clock), settings_(settings), random_(seed) {
  TERN_CHECK(settings.delay_min_ns <= settings.delay_max_ns);
}

std::unique_ptr<Connection> FaultyTransport::connect(const Endpoint& endpoint,
                                                     ConnectionSink& sink) {
  auto connection = std::make_unique<FaultyConnection>(*this, sink);
  connection->begin(endpoint);
  connections_.push_back(connection.get());
  return connection;
}

std::unique_ptr<Connection> FaultyTransport::adopt(std::unique_ptr<Incoming> incoming,
                                                   ConnectionSink& sink) {
  auto connection = std::make_unique<FaultyConnection>(*this, sink);
  connection->begin(std::move(incoming));
  connections_.push_back(connection.get());
  return connection;
}

int FaultyTransport::poll() {
  std::erase(connections_, nullptr);
  int work = 0;
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (connections_[i] != nullptr) work += connections_[i]->pump(clock_.now_ns());
    if (connections_[i] != nullptr) work += connections_[i]->report();
  }
  return work + inner_.poll();
}

void FaultyTransport::cut_all() {
  for (FaultyConnection* connection : connections_) {
    if (connection == nullptr) continue;
    ++counters_.cuts;
    connection->cut();
  }
}

std::uint64_t FaultyTransport::next_deadline_ns() const noexcept {
  std::uint64_t deadline = ~std::uint64_t{0};
  for (const FaultyConnection* connection : connections_) {
    if (connection != nullptr) deadline = std::min(deadline, connection->next_deadline_ns());
  }
  return deadline;
}

}  // namespace tern::net
