// How a connection is moved to a queue pair, and how it stays where it is.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "rdma/rdma_stream.h"

namespace tern::rdma {
namespace {

std::string packets_hint(const DataPath& path) {
  return ": can RDMA packets of " + std::to_string(path.packet_bytes()) +
         " bytes (RoCE v2: UDP port 4791) pass both ways? Look at firewalls, and at the MTU of "
         "both interfaces and of the switches between them, or set rdma_mtu lower";
}

}  // namespace

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
    stay_on_control(why);
    return mode_ == Mode::closed;
  }
  control_.pass_hello_that_asks(hello.body);
  mode_ = Mode::asking;
  asked_ = true;
  return true;
}

bool RdmaStream::make_path(std::string& why) {
  const std::shared_ptr<Device> device = transport_.device(why);
  if (!device) return false;
  if (const Status known = device->refresh(transport_.settings()); !known) {
    why = known.error().text;
    return false;
  }
  auto path = DataPath::create(device, transport_.settings(), transport_.memory());
  if (!path) {
    why = path.error().text;
    return false;
  }
  path_ = std::move(*path);
  // The side that offers gives up first, and says so; the other one only closes.
  const std::uint64_t whole = transport_.settings().setup_timeout_ns;
  set_up_ns_ = transport_.clock().now_ns();
  deadline_ns_ = set_up_ns_ + (connects_ ? whole : whole / 3 * 2);
  return true;
}

// The peer waits for an answer to its hello. For one that is sent away no queue pair is made.
void RdmaStream::offer_before(const net::OutgoingFrame& frame) {
  offer_due_ = false;
  const wire::ParsedFrame parsed = wire::parse_frame_header(frame.head);
  if (parsed.error == wire::ParseError::none &&
      parsed.header.kind == static_cast<std::uint8_t>(wire::FrameKind::refuse)) {
    return;
  }
  begin_offer();
}

// The accepting side, which knows that the peer understands.
void RdmaStream::begin_offer() {
  std::string why = attempts_.trouble();
  if (attempts_.must_wait(choice_)) {
    decline(why);
    attempts_.wait();
    return;
  }
  if (!make_path(why)) return decline(why, Fault::ours);
  control_.send_set_up(wire::FrameKind::rdma_offer, path_->local());
  mode_ = Mode::offered;
}

void RdmaStream::take_offer(const wire::RdmaBody& remote) {
  std::string why = attempts_.trouble();
  if (attempts_.must_wait(choice_)) return decline(why);
  if (!attempts_.may_take_offer()) return decline("its offers come too often");
  if (!make_path(why)) return decline(why, Fault::ours);
  if (const Status started = path_->start(remote); !started) {
    return decline(started.error().text, Fault::path);
  }
  control_.send_set_up(wire::FrameKind::rdma_accept, path_->local());
  receiver_.check_payload(transport_.settings().payload_crc ||
                          (remote.features & wire::kRdmaNoPayloadCrc) == 0);
  mode_ = Mode::accepted;
}

void RdmaStream::take_accept(const wire::RdmaBody& remote) {
  if (const Status started = path_->start(remote); !started) {
    return decline(started.error().text, Fault::path);
  }
  receiver_.check_payload(transport_.settings().payload_crc ||
                          (remote.features & wire::kRdmaNoPayloadCrc) == 0);
  path_->probe();
  mode_ = Mode::probing;
}

void RdmaStream::take_decline(const wire::RefuseBody& body) {
  char text[sizeof body.text + 1] = {};
  std::memcpy(text, body.text, sizeof body.text);
  for (char& c : text) {
    if (c != '\0' && (c < ' ' || c > '~')) c = '?';
  }
  const std::string why = std::string("the peer says: ") + text;
  const bool had_path = path_ != nullptr;
  stay_on_control(why);
  // The side that offers tries again; the other one may have its reasons still.
  if (connects_) return;
  if (had_path) attempts_.note_abandoned(why);
  attempts_.note_decline(static_cast<Errc>(body.code) == Errc::unreachable ? Fault::path
                                                                           : Fault::ours);
}

// The code tells the peer whether to try ever more rarely: `unreachable` is of the path.
void RdmaStream::decline(const std::string& why, Errc code) {
  control_.send_decline(code, why.c_str());
  stay_on_control(why);
}

void RdmaStream::decline(const std::string& why, Fault fault) {
  ++transport_.mutable_counters().declined;
  attempts_.note_failure(why, fault);
  decline(why, fault == Fault::path ? Errc::unreachable : Errc::unsupported);
}

// Where the peer waits for us it is told. Else what it says next may be on its way, and would have
// lost its meaning.
void RdmaStream::give_up_set_up(const std::string& why, Fault fault) {
  if (mode_ == Mode::probing || (mode_ == Mode::accepted && !path_->is_probed())) {
    return decline(why, fault);
  }
  ++transport_.mutable_counters().declined;
  attempts_.note_failure(why, fault);
  close(Errc::io_error, why);
}

// Frames that were held leave on the control connection.
void RdmaStream::stay_on_control(const std::string& why) {
  if (path_) {
    path_received_ += path_->received_bytes();
    path_->close();
    path_.reset();
  }
  note_.stay(why);
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
  held_.release([&](const net::OutgoingFrame& frame) { control_.pass(frame); });
}

void RdmaStream::move_to_rdma() {
  mode_ = Mode::rdma;
  note_.move_to(path_->device().name());
  attempts_.note_opened();
  ++transport_.mutable_counters().opened;
  held_.release([&](const net::OutgoingFrame& frame) { path_->send(frame); });
}

void RdmaStream::handle_own_frame(const wire::FrameHeader& header) {
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  wire::ParsedRdma parsed;
  if (kind == wire::FrameKind::rdma_offer || kind == wire::FrameKind::rdma_accept) {
    parsed = wire::parse_rdma(header, control_.payload(header));
    if (parsed.error != wire::RdmaError::none) {
      const std::string why = wire::rdma_error_text(parsed.error);
      attempts_.note_failure(why, Fault::path);
      return close(Errc::protocol_error, why);
    }
  }
  // An answer to what has not left yet: from then on frames would be counted as taken that TCP
  // still has to read.
  const bool is_answer =
      kind == wire::FrameKind::rdma_accept || kind == wire::FrameKind::rdma_ready;
  if ((kind == wire::FrameKind::rdma_offer && control_.has_own_waiting()) ||
      (is_answer && control_.has_waiting())) {
    constexpr const char* kEarly = "the peer answered the RDMA set-up before it can have read it";
    attempts_.note_failure(kEarly, Fault::path);
    return close(Errc::protocol_error, kEarly);
  }
  const bool may_be_asked = asked_ && (mode_ == Mode::asking || mode_ == Mode::control);
  if (kind == wire::FrameKind::rdma_offer && may_be_asked) return take_offer(parsed.body);
  if (kind == wire::FrameKind::rdma_accept && mode_ == Mode::offered) {
    return take_accept(parsed.body);
  }
  if (kind == wire::FrameKind::rdma_ready && mode_ == Mode::accepted) return move_to_rdma();
  if (kind == wire::FrameKind::rdma_decline && (is_holding() || mode_ == Mode::control)) {
    wire::RefuseBody body;
    std::memcpy(&body, control_.payload(header).data(), sizeof body);
    return take_decline(body);
  }
  attempts_.note_failure(kBrokenOrder, Fault::path);
  close(Errc::protocol_error, kBrokenOrder);
}

int RdmaStream::poll_negotiation() {
  if (!failed_text_.empty()) {
    close(Errc::unreachable, failed_text_);
    return 1;
  }
  if (offer_due_) {
    offer_due_ = false;
    begin_offer();
    return 1;
  }
  if (mode_ == Mode::control) {
    const bool is_due = !connects_ && peer_has_rdma_ && attempts_.is_due();
    // The last frames of ours must have left the memory that the next ones take.
    if (!is_due || control_.has_own_waiting()) return 0;
    begin_offer();
    return 1;
  }
  return is_holding() && path_ ? poll_set_up() : 0;
}

// Before both are ready nothing is due over RDMA but the probes. The connecting side looks at the
// queue pair until it has the peer's: what comes after it may be frames, whose turn is after ready.
int RdmaStream::poll_set_up() {
  int work = 0;
  const std::shared_ptr<DataPath> path = path_;
  const Mode before = mode_;
  if (before == Mode::probing || (before == Mode::accepted && !path->is_probed())) {
    work = path->poll(*this);
    if (sink_ == nullptr || mode_ != before) return work + 1;
    if (before == Mode::accepted && path->is_probed()) path->probe();
  } else if (before == Mode::accepted) {
    work = path->look();
  }
  if (path->has_failed()) {
    give_up_set_up(
        path->has_lost_packets() ? path->failure() + packets_hint(*path) : path->failure(),
        Fault::path);
    return work + 1;
  }
  if (mode_ == Mode::probing && path->is_idle() && path->is_probed()) {
    control_.send_ready();
    move_to_rdma();
    return work + 1;
  }
  if (transport_.clock().now_ns() >= deadline_ns_) {
    const std::string why = "the set-up of RDMA was not finished in time";
    // The peer sends nothing by RDMA before it is told that both are ready.
    if (mode_ == Mode::probing) {
      decline(why + packets_hint(*path), Fault::path);
      return work + 1;
    }
    const bool has_probed = mode_ == Mode::accepted && path->is_probed();
    const std::string text = has_probed ? why + packets_hint(*path) : why;
    ++transport_.mutable_counters().declined;
    attempts_.note_failure(text, Fault::path);
    close(Errc::timeout, text);
    return work + 1;
  }
  return work;
}

}  // namespace tern::rdma
