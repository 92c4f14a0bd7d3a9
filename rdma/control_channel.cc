#include "rdma/control_channel.h"

#include <algorithm>
#include <utility>

namespace tern::rdma {

void ControlChannel::open(std::unique_ptr<net::Connection> connection) noexcept {
  connection_ = std::move(connection);
}

void ControlChannel::pass(const net::OutgoingFrame& frame) {
  given_ += frame.head.size() + frame.body.size();
  connection_->send(frame);
}

void ControlChannel::pass_hello_that_asks(const wire::HelloBody& hello) {
  wire::HelloBody body = hello;
  body.features |= wire::kFeatureRdma;
  hello_ = wire::make_hello(wire::FrameKind::hello, body);
  pass({std::as_bytes(std::span(&hello_, 1)), {}});
}

std::size_t ControlChannel::user_bytes() const {
  if (!connection_) return 0;
  const std::uint64_t queued = connection_->queued_bytes();
  const std::uint64_t taken = given_ - queued;
  const std::uint64_t own = own_end_ > taken ? std::min(own_bytes_, own_end_ - taken) : 0;
  return static_cast<std::size_t>(queued - own);
}

void ControlChannel::send_own(std::span<const std::byte> frame) {
  // Frames of ours that were taken long ago do not count any more.
  if (!has_own_waiting()) own_bytes_ = 0;
  given_ += frame.size();
  own_end_ = given_;
  own_bytes_ += frame.size();
  connection_->send({frame, {}});
}

void ControlChannel::send_set_up(wire::FrameKind kind, const wire::RdmaBody& local) {
  set_up_ = wire::make_rdma(kind, local);
  send_own(std::as_bytes(std::span(&set_up_, 1)));
}

void ControlChannel::send_ready() {
  ready_ = wire::make_rdma_ready();
  send_own(std::as_bytes(std::span(&ready_, 1)));
}

void ControlChannel::send_decline(Errc code, const char* why) {
  decline_ = wire::make_rdma_decline(code, why);
  send_own(std::as_bytes(std::span(&decline_, 1)));
}

bool ControlChannel::has_own_waiting() const { return own_end_ > taken(); }

bool ControlChannel::place(const wire::FrameHeader& header, net::PayloadPlace& place) noexcept {
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  const std::size_t bytes = kind == wire::FrameKind::rdma_ready     ? 0
                            : kind == wire::FrameKind::rdma_decline ? sizeof(wire::RefuseBody)
                                                                    : sizeof(wire::RdmaBody);
  if (header.payload_bytes != bytes) return false;
  place.body = std::span(payload_).first(bytes);
  return true;
}

}  // namespace tern::rdma
