#include "rdma/rdma_stream.h"

namespace tern::rdma {
namespace {

constexpr const char* kEndedInSetUp = "connections ended while RDMA was set up";

// How long what has arrived may wait for completions of our own after the peer has closed.
constexpr std::uint64_t kLingerNs = 200'000'000;

}  // namespace

RdmaStream::RdmaStream(RdmaTransport& transport, net::ConnectionSink& sink, std::string peer)
    : transport_(transport),
      sink_(&sink),
      attempts_(transport.troubles(), std::move(peer), transport.clock(), transport.settings()) {}

RdmaStream::~RdmaStream() = default;

void RdmaStream::connect_to(const net::Endpoint& endpoint) {
  connects_ = true;
  where_ = to_text(endpoint);
  choice_ = transport_.choice_for(endpoint.host);
  control_.open(transport_.control().connect(endpoint, *this));
}

void RdmaStream::adopt(std::unique_ptr<net::Incoming> incoming) {
  where_ = incoming->from;
  choice_ = transport_.choice_for(incoming->from);
  peer_has_rdma_ = (incoming->hello.features & wire::kFeatureRdma) != 0;
  control_.open(transport_.control().adopt(std::move(incoming), *this));
  mode_ = Mode::control;
  if (!peer_has_rdma_) {
    stay_on_control(kPeerHasNone);
  } else if (choice_ == Choice::never) {
    peer_has_rdma_ = false;
    decline("the settings say so");
  } else {
    offer_due_ = true;
  }
}

void RdmaStream::detach() {
  const std::uint64_t now = transport_.clock().now_ns();
  const std::uint64_t long_ns = transport_.settings().setup_timeout_ns;
  // Given up by its user: by this set-up, if it took long.
  if (is_holding() && path_ && now >= set_up_ns_ + long_ns / 2) {
    attempts_.note_failure("its set-up was not finished in time", Fault::path);
  } else if (is_holding() && path_ && !connects_) {
    attempts_.note_abandoned(kEndedInSetUp);
  }
  if (mode_ == Mode::rdma && path_ && !control_end_) {
    // Or since nothing was heard: the next connection is to be another one.
    const bool is_quiet = silence_.lasts(now, long_ns);
    using Drained = RdmaTransport::Drained;
    const Drained drained =
        !is_quiet && attempts_.may_await_end() ? transport_.drain(*path_) : Drained::had_no_time;
    if (drained == Drained::not_all) attempts_.note_unheard_end();
    if (path_->has_failed()) {
      attempts_.note_failure(path_->failure(), Fault::path);
    } else if (is_quiet) {
      attempts_.note_failure("nothing that was sent over RDMA arrived any more", Fault::path);
    } else if (drained == Drained::all) {
      attempts_.note_good_end();
    }
  }
  // What was sent last leaves on the control connection, where the peer must not wait for RDMA.
  if (is_holding() && !held_.empty()) {
    // After both probes the peer may use RDMA already, and would take a decline for a breach.
    const bool may_be_over = mode_ == Mode::accepted && path_->is_probed();
    if (mode_ == Mode::asking) {
      flush_held();
    } else if (!may_be_over) {
      decline("the connection is closing");
    }
  }
  sink_ = nullptr;
  connection_ = nullptr;
  mode_ = Mode::closed;
  if (path_) path_->close();
  path_.reset();
  control_.close();
}

void RdmaStream::close(Errc reason, std::string text) {
  mode_ = Mode::closed;
  if (path_) path_->close();
  path_.reset();
  control_.close();
  closed_text_ = std::move(text);
  sink_->on_closed(*connection_, reason, closed_text_.c_str());
}

void RdmaStream::fail_over(const std::string& why, Fault fault) {
  if (sink_ == nullptr || !path_) return;
  if (mode_ == Mode::rdma) {
    ++transport_.mutable_counters().failovers;
    attempts_.note_failover();
    attempts_.note_failure(why, fault);
    close(Errc::io_error, "RDMA failed: " + why);
  } else {
    give_up_set_up(why, fault);
  }
}

void RdmaStream::take_event(const Device::Broken& broken) {
  if (path_) path_->take_event(broken);
}

// ---- Outgoing

void RdmaStream::send(const net::OutgoingFrame& frame) {
  // RDMA was insisted on and cannot be had: nothing goes over TCP until the next poll() closes.
  if (!failed_text_.empty()) return;
  if (mode_ == Mode::closed || (mode_ == Mode::greeting && pass_hello(frame))) return;
  if (offer_due_) {
    offer_before(frame);
    if (!failed_text_.empty()) return;
  }
  if (is_holding()) {
    held_.push(frame);
  } else if (mode_ == Mode::rdma) {
    path_->send(frame);
  } else {
    control_.pass(frame);
  }
}

std::size_t RdmaStream::queued_bytes() const {
  return held_.bytes() + (path_ ? path_->queued_bytes() : 0) + control_.user_bytes();
}

std::uint64_t RdmaStream::received_bytes() const noexcept {
  return path_received_ + (path_ ? path_->received_bytes() : 0) + control_.received_bytes();
}

net::Carriage RdmaStream::carriage() const noexcept {
  const char* name = "rdma";
  if (mode_ != Mode::rdma) {
    name = is_holding()         ? "settling"
           : control_.is_open() ? control_.connection().carriage().name
                                : "tcp";
  }
  return {name, note_.text(), attempts_.failovers()};
}

net::DeliveryRate RdmaStream::delivery_rate() const {
  const bool knows = mode_ != Mode::rdma && control_.is_open();
  return knows ? control_.connection().delivery_rate() : net::DeliveryRate{};
}

// A card shares by queue pair, and has nothing waiting but its own work.
void RdmaStream::bound_queue(const net::QueueBound& bound) {
  if (mode_ != Mode::rdma && control_.is_open()) control_.connection().bound_queue(bound);
}

// ---- Events of the queue pair

int RdmaStream::poll() {
  if (sink_ == nullptr || mode_ == Mode::closed) return 0;
  if (mode_ != Mode::rdma) return poll_negotiation();
  const std::shared_ptr<DataPath> path = path_;
  const int work = path->poll(*this);
  if (sink_ == nullptr || mode_ != Mode::rdma) return work + 1;
  if (path->has_failed() && !control_end_) {
    const std::string why = path->failure();
    fail_over(why, Fault::path);
    return work + 1;
  }
  if (control_end_) {
    const bool has_more = work > 0 || (path->has_waiting() && !path->has_failed());
    if (!has_more || transport_.clock().now_ns() >= control_end_->at_ns + kLingerNs) {
      attempts_.note_good_end();
      close(control_end_->reason, control_end_->text);
      return work + 1;
    }
  }
  silence_.look(path->is_idle(), path->progress(), [&] { return transport_.clock().now_ns(); });
  note_.follow(path->device().name(), transport_.memory());
  return work;
}

bool RdmaStream::arm() {
  if (sink_ == nullptr || mode_ == Mode::closed) return true;
  if (!path_) return !offer_due_ && failed_text_.empty();
  return path_->arm() && !control_end_;
}

void RdmaStream::on_message(std::span<const std::byte> bytes) {
  if (mode_ != Mode::rdma) {
    attempts_.note_failure(kBrokenOrder, Fault::path);
    close(Errc::protocol_error, "a frame came over RDMA before it was due");
    return;
  }
  if (!receiver_.is_inside()) {
    if (!begin_frame(bytes)) return;
    bytes = bytes.subspan(wire::kFrameHeaderBytes);
  }
  if (bytes.size() > receiver_.missing_bytes()) {
    close(Errc::corrupt_data, "a message goes beyond the end of its frame");
    return;
  }
  receiver_.copy_in(bytes);
  if (receiver_.missing_bytes() == 0) receiver_.deliver(*sink_, *connection_);
}

bool RdmaStream::begin_frame(std::span<const std::byte> bytes) {
  const wire::ParseError error = receiver_.read_header(bytes);
  const bool is_own = wire::is_rdma(static_cast<wire::FrameKind>(receiver_.header().kind));
  if (error != wire::ParseError::none || is_own) {
    close(Errc::corrupt_data,
          is_own ? "a frame of the set-up came over RDMA" : wire::parse_error_text(error));
    return false;
  }
  const bool accepted = receiver_.announce(*sink_, *connection_);
  if (sink_ == nullptr) return false;
  if (!accepted) close(Errc::corrupt_data, net::FrameReceiver::kRefused);
  return accepted;
}

// ---- Events of the control connection

void RdmaStream::on_open(net::Connection&) { sink_->on_open(*connection_); }

bool RdmaStream::on_header(net::Connection&, const wire::FrameHeader& header,
                           net::PayloadPlace& place) {
  const auto kind = static_cast<wire::FrameKind>(header.kind);
  if (wire::is_rdma(kind)) return control_.place(header, place);
  // Any other answer to the hello than an offer is that of a peer without RDMA, or of one that
  // wants no connection at all and has its reasons.
  if (mode_ == Mode::asking) {
    if (kind == wire::FrameKind::refuse) return sink_->on_header(*connection_, header, place);
    stay_on_control(kPeerHasNone);
  }
  if (sink_ == nullptr || mode_ == Mode::closed) return false;
  if (!failed_text_.empty()) {
    close(Errc::unreachable, failed_text_);
    return false;
  }
  // The peer holds its frames, or sends them by RDMA.
  if (mode_ == Mode::rdma || mode_ == Mode::accepted || mode_ == Mode::probing) return false;
  return sink_->on_header(*connection_, header, place);
}

void RdmaStream::on_frame(net::Connection&, const wire::FrameHeader& header,
                          const net::PayloadPlace& place, bool payload_valid) {
  if (!wire::is_rdma(static_cast<wire::FrameKind>(header.kind))) {
    sink_->on_frame(*connection_, header, place, payload_valid);
  } else if (payload_valid) {
    handle_own_frame(header);
  } else {
    close(Errc::corrupt_data, "a frame of the RDMA set-up has a wrong CRC");
  }
}

void RdmaStream::on_closed(net::Connection&, Errc reason, const char* text) {
  if (mode_ == Mode::rdma) {
    control_end_ = {reason, text, transport_.clock().now_ns()};
    return;
  }
  if (is_holding() && path_ && !connects_) attempts_.note_abandoned(kEndedInSetUp);
  close(reason, text);
}

}  // namespace tern::rdma
