// How a connection is moved to a queue pair, and how it stays where it is.

#include <cstring>

#include "base/check.h"
#include "rdma/rdma_stream.h"

namespace tern::rdma {

// True: the frame was the hello, and has been sent with the bit that asks for an offer.
bool RdmaStream::pass_hello(const net::OutgoingFrame& frame) {
  mode_ = Mode::control;
  if (frame.head.size() != sizeof(wire::HelloFrame) || !frame.body.empty()) return false;
  const wire::ParsedFrame parsed = wire::parse_frame_header(frame.head);
  if (parsed.error != wire::ParseError::none) return false;
  const wire::ParsedHello hello =
      wire::parse_hello(parsed.header, frame.head.subspan(wire::kFrameHeaderBytes));
  if (hello.error != wire::HelloError::none ||
      parsed.header.kind != static_cast<std::uint8_t>(wire::FrameKind::hello)) {
    return false;
  }
  std::string why = "the settings say so";
  const bool has_device = choice_ != Choice::never && transport_.device(why) != nullptr;
  // A device that is gone or down for now is no reason never to be asked: the peer asks again and
  // again.
  const bool may_have_later = choice_ == Choice::if_possible && transport_.may_have_device();
  if (!has_device && !may_have_later) {
    stay_on_control(why, false);
    return mode_ == Mode::closed;
  }
  wire::HelloBody body = hello.body;
  body.features |= wire::kFeatureRdma;
  hello_ = wire::make_hello(wire::FrameKind::hello, body);
  const auto bytes = std::as_bytes(std::span(&hello_, 1));
  control_given_ += bytes.size();
  control_->send({bytes, {}});
  mode_ = Mode::asking;
  asked_ = true;
  return true;
}

void RdmaStream::send_own(std::span<const std::byte> frame) {
  // Frames of ours that were taken long ago do not count any more.
  const std::uint64_t taken = control_given_ - control_->queued_bytes();
  if (own_end_ <= taken) own_bytes_ = 0;
  control_given_ += frame.size();
  own_end_ = control_given_;
  own_bytes_ += frame.size();
  control_->send({frame, {}});
}

bool RdmaStream::make_path(std::string& why) {
  const std::shared_ptr<Device> device = transport_.device(why);
  if (!device) return false;
  auto path = DataPath::create(device, transport_.settings(), transport_.memory());
  if (!path) {
    why = path.error().text;
    return false;
  }
  path_ = std::move(*path);
  deadline_ns_ = transport_.clock().now_ns() + transport_.settings().setup_timeout_ns;
  return true;
}

// Where RDMA is required there is nothing to do meanwhile.
bool RdmaStream::must_wait(const PeerTrouble& trouble) const {
  return choice_ != Choice::required && transport_.clock().now_ns() < trouble.retry_at_ns;
}

// The accepting side, which knows that the peer understands. The peer waits for an answer.
void RdmaStream::begin_offer() {
  const PeerTrouble& trouble = transport_.trouble(peer_);
  std::string why = trouble.text;
  if (must_wait(trouble)) {
    decline(why, false);
    retry_at_ns_ = trouble.retry_at_ns;
    return;
  }
  if (!make_path(why)) {
    decline(why, true);
    return;
  }
  setup_frame_ = wire::make_rdma(wire::FrameKind::rdma_offer, path_->local());
  send_own(std::as_bytes(std::span(&setup_frame_, 1)));
  mode_ = Mode::offered;
}

void RdmaStream::take_offer(const wire::RdmaBody& remote) {
  const PeerTrouble& trouble = transport_.trouble(peer_);
  std::string why = trouble.text;
  if (must_wait(trouble)) return decline(why, false);
  if (!make_path(why)) return decline(why, true);
  if (const Status started = path_->start(remote); !started) {
    return decline(started.error().text, true);
  }
  setup_frame_ = wire::make_rdma(wire::FrameKind::rdma_accept, path_->local());
  send_own(std::as_bytes(std::span(&setup_frame_, 1)));
  checks_crc_ =
      transport_.settings().payload_crc || (remote.features & wire::kRdmaNoPayloadCrc) == 0;
  mode_ = Mode::accepted;
}

void RdmaStream::take_accept(const wire::RdmaBody& remote) {
  if (const Status started = path_->start(remote); !started) {
    return decline(started.error().text, true);
  }
  checks_crc_ =
      transport_.settings().payload_crc || (remote.features & wire::kRdmaNoPayloadCrc) == 0;
  path_->ping();
  mode_ = Mode::probing;
}

void RdmaStream::take_ready() { move_to_rdma(); }

void RdmaStream::take_decline(const wire::RefuseBody& body) {
  char text[sizeof body.text + 1] = {};
  std::memcpy(text, body.text, sizeof body.text);
  for (char& c : text) {
    if (c != '\0' && (c < ' ' || c > '~')) c = '?';
  }
  stay_on_control(std::string("the peer says: ") + text, false);
  // The side that offers tries again; the other one may have its reasons still.
  if (!connects_) retry_at_ns_ = transport_.clock().now_ns() + transport_.settings().retry_ns;
}

void RdmaStream::decline(const std::string& why, bool is_failure) {
  if (is_failure) ++transport_.mutable_counters().declined;
  decline_frame_ = wire::make_rdma_decline(Errc::unsupported, why.c_str());
  send_own(std::as_bytes(std::span(&decline_frame_, 1)));
  stay_on_control(why, is_failure);
}

void RdmaStream::note_failure(const std::string& why) {
  PeerTrouble& trouble = transport_.trouble(peer_);
  trouble.retry_at_ns = transport_.clock().now_ns() + transport_.settings().retry_ns;
  trouble.text = why;
  retry_at_ns_ = trouble.retry_at_ns;
}

// Frames that were held leave on the control connection.
void RdmaStream::stay_on_control(const std::string& why, bool is_failure) {
  if (is_failure) note_failure(why);
  if (path_) {
    path_received_ += path_->received_bytes();
    path_->close();
    path_.reset();
  }
  note_ = why;
  if (choice_ == Choice::required) {
    mode_ = Mode::control;
    failed_text_ =
        "RDMA is required for " + where_ + " (settings transport, peer_transports): " + why;
    return;
  }
  mode_ = Mode::control;
  flush_held();
}

void RdmaStream::flush_held() {
  for (; !held_.empty(); held_.pop()) {
    const net::OutgoingFrame& frame = held_.at(0);
    control_given_ += frame.head.size() + frame.body.size();
    control_->send(frame);
  }
  held_bytes_ = 0;
}

void RdmaStream::move_to_rdma() {
  mode_ = Mode::rdma;
  note_ = path_->device().name();
  retry_at_ns_ = 0;
  transport_.trouble(peer_).text.clear();
  ++transport_.mutable_counters().opened;
  for (; !held_.empty(); held_.pop()) path_->send(held_.at(0));
  held_bytes_ = 0;
}

void RdmaStream::handle_own_frame(const wire::FrameHeader& header) {
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  wire::ParsedRdma parsed;
  if (kind == wire::FrameKind::rdma_offer || kind == wire::FrameKind::rdma_accept) {
    parsed = wire::parse_rdma(header, std::span(own_payload_).first(header.payload_bytes));
    if (parsed.error != wire::RdmaError::none) {
      const std::string why = wire::rdma_error_text(parsed.error);
      note_failure(why);
      return close(Errc::protocol_error, why);
    }
  }
  // An answer to what has not left yet: from then on frames would be counted as taken that TCP
  // still has to read.
  const std::size_t queued = control_->queued_bytes();
  const bool own_unread = own_end_ > control_given_ - queued;
  const bool is_answer =
      kind == wire::FrameKind::rdma_accept || kind == wire::FrameKind::rdma_ready;
  if ((kind == wire::FrameKind::rdma_offer && own_unread) || (is_answer && queued > 0)) {
    note_failure("the peer answered the RDMA set-up before it can have read it");
    return close(Errc::protocol_error,
                 "the peer answered the RDMA set-up before it can have read it");
  }
  const bool may_be_asked = asked_ && (mode_ == Mode::asking || mode_ == Mode::control);
  if (kind == wire::FrameKind::rdma_offer && may_be_asked) return take_offer(parsed.body);
  if (kind == wire::FrameKind::rdma_accept && mode_ == Mode::offered) {
    return take_accept(parsed.body);
  }
  if (kind == wire::FrameKind::rdma_ready && mode_ == Mode::accepted) return take_ready();
  if (kind == wire::FrameKind::rdma_decline && (is_holding() || mode_ == Mode::control)) {
    wire::RefuseBody body;
    std::memcpy(&body, own_payload_.data(), sizeof body);
    return take_decline(body);
  }
  note_failure("the peer broke the order of the RDMA set-up");
  close(Errc::protocol_error, "the peer broke the order of the RDMA set-up");
}

int RdmaStream::poll_negotiation() {
  if (!failed_text_.empty()) {
    close(Errc::unreachable, failed_text_);
    return 1;
  }
  const std::uint64_t now = transport_.clock().now_ns();
  if (mode_ == Mode::control) {
    const bool is_due = retry_at_ns_ != 0 && now >= retry_at_ns_ && !connects_ && peer_has_rdma_;
    // The last frames of ours must have left the memory that the next ones take.
    if (!is_due || own_end_ > control_given_ - control_->queued_bytes()) return 0;
    begin_offer();
    return 1;
  }
  if (!is_holding() || !path_) return 0;
  int work = 0;
  // Before both are ready nothing is due but the arrival of the empty message.
  if (mode_ == Mode::probing) {
    const std::shared_ptr<DataPath> path = path_;
    work = path->poll(*this);
    if (sink_ == nullptr || mode_ != Mode::probing) return work + 1;
  }
  if (path_->has_failed()) {
    decline(path_->failure() +
                ": can packets of RDMA (RoCE v2: UDP port 4791) pass both ways, and are "
                "the MTUs of both interfaces alike?",
            true);
    return work + 1;
  }
  if (mode_ == Mode::probing && path_->is_idle()) {
    ready_frame_ = wire::make_rdma_ready();
    send_own(std::as_bytes(std::span(&ready_frame_, 1)));
    move_to_rdma();
    return work + 1;
  }
  if (now >= deadline_ns_) {
    const std::string why = "the set-up of RDMA was not finished in time";
    // The peer sends nothing by RDMA before it is told that both are ready.
    if (mode_ == Mode::probing) {
      decline(why, true);
      return work + 1;
    }
    note_failure(why);
    close(Errc::timeout, why);
    return work + 1;
  }
  return work;
}

}  // namespace tern::rdma
