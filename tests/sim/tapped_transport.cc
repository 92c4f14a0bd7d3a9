#include "tapped_transport.h"

#include <utility>

namespace tern::sim {
namespace {

thread_local bool lane_code = false;

class TappedConnection final : public net::Connection, private net::ConnectionSink {
 public:
  TappedConnection(net::ConnectionSink& sink, const Tap& tap, bool of_lane)
      : sink_(sink), tap_(tap), of_lane_(of_lane) {}
  ~TappedConnection() override {
    const LaneCode carrier(false);
    inner_.reset();
  }
  net::ConnectionSink& sink() { return *this; }
  void set_inner(std::unique_ptr<net::Connection> inner) { inner_ = std::move(inner); }

  void send(const net::OutgoingFrame& frame) override {
    const LaneCode carrier(false);
    if (tap_) tap_(frame);
    inner_->send(frame);
  }
  std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
  std::uint64_t received_bytes() const override { return inner_->received_bytes(); }
  net::DeliveryRate delivery_rate() const override { return inner_->delivery_rate(); }
  net::Carriage carriage() const override { return inner_->carriage(); }
  void bound_queue(const net::QueueBound& bound) override { inner_->bound_queue(bound); }
  void hold_reading(bool hold) override { inner_->hold_reading(hold); }
  bool wants_payload_crc() const override { return inner_->wants_payload_crc(); }

 private:
  // The connection may be destroyed in each of these.
  void on_open(net::Connection&) override {
    const LaneCode lane(of_lane_);
    sink_.on_open(*this);
  }
  bool on_header(net::Connection&, const wire::FrameHeader& header,
                 net::PayloadPlace& place) override {
    const LaneCode lane(of_lane_);
    return sink_.on_header(*this, header, place);
  }
  void on_frame(net::Connection&, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override {
    const LaneCode lane(of_lane_);
    sink_.on_frame(*this, header, place, payload_valid);
  }
  void on_closed(net::Connection&, Errc reason, const char* text) override {
    const LaneCode lane(of_lane_);
    sink_.on_closed(*this, reason, text);
  }

  net::ConnectionSink& sink_;
  const Tap& tap_;
  bool of_lane_;
  std::unique_ptr<net::Connection> inner_;
};

}  // namespace

bool in_lane_code() noexcept { return lane_code; }

LaneCode::LaneCode(bool runs) noexcept : before_(std::exchange(lane_code, runs)) {}
LaneCode::~LaneCode() { lane_code = before_; }

std::unique_ptr<net::Connection> TappedTransport::connect(const net::Endpoint& endpoint,
                                                          net::ConnectionSink& sink) {
  const LaneCode carrier(false);
  auto connection = std::make_unique<TappedConnection>(sink, tap_, of_lane_);
  connection->set_inner(inner_.connect(endpoint, connection->sink()));
  return connection;
}

std::unique_ptr<net::Connection> TappedTransport::adopt(std::unique_ptr<net::Incoming> incoming,
                                                        net::ConnectionSink& sink) {
  const LaneCode carrier(false);
  auto connection = std::make_unique<TappedConnection>(sink, tap_, of_lane_);
  connection->set_inner(inner_.adopt(std::move(incoming), connection->sink()));
  return connection;
}

int TappedTransport::poll() {
  const LaneCode carrier(false);
  return inner_.poll();
}

}  // namespace tern::sim
