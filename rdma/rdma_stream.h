#pragma once

// One connection: rdma_stream.cc has its life and its frames, negotiation.cc how it is moved to a
// queue pair (wire/rdma.h has the frames of that).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "net/frame_receiver.h"
#include "net/transport.h"
#include "rdma/attempts.h"
#include "rdma/carriage_note.h"
#include "rdma/control_channel.h"
#include "rdma/data_path.h"
#include "rdma/held_frames.h"
#include "rdma/rdma_transport.h"
#include "rdma/silence.h"
#include "wire/hello.h"
#include "wire/rdma.h"

namespace tern::rdma {

inline constexpr const char* kPeerHasNone = "the peer has no RDMA, or is told not to use it";
inline constexpr const char* kBrokenOrder = "the peer broke the order of the RDMA set-up";

// Shared by the Connection that its user holds and the transport. Once the user has destroyed the
// Connection, sink is null and nothing is done any more.
class RdmaStream final : private net::ConnectionSink, private MessageSink {
 public:
  // `peer` is the key of what is known of it.
  RdmaStream(RdmaTransport& transport, net::ConnectionSink& sink, std::string peer);
  ~RdmaStream() override;

  void connect_to(const net::Endpoint& endpoint);
  void adopt(std::unique_ptr<net::Incoming> incoming);
  void attach(net::Connection& connection) noexcept { connection_ = &connection; }
  void detach();
  bool is_detached() const noexcept { return sink_ == nullptr; }

  void send(const net::OutgoingFrame& frame);
  std::size_t queued_bytes() const;
  std::uint64_t received_bytes() const noexcept;
  net::Carriage carriage() const noexcept;
  // Of the control connection while frames travel there; a queue pair counts nothing of the kind.
  net::DeliveryRate delivery_rate() const;
  void bound_queue(const net::QueueBound& bound);
  bool wants_payload_crc() const noexcept {
    return mode_ != Mode::rdma || receiver_.checks_payload();
  }

  int poll();
  bool arm();
  const DataPath* path() const noexcept { return path_.get(); }
  bool is_on_control() const noexcept { return mode_ != Mode::rdma; }
  // RDMA does not work any more: the connection ends, or stays where it is if its set-up had begun.
  void fail_over(const std::string& why, Fault fault);
  void take_event(const Device::Broken& broken);
  const std::string& peer() const noexcept { return attempts_.peer(); }

 private:
  // What frames of the user travel on, or that they are held until that is settled.
  enum class Mode : std::uint8_t {
    greeting,  // connecting side, the hello has not been sent: on the control connection
    asking,    // its hello has asked for an offer: held
    offered,   // accepting side, has offered: held
    probing,   // and has been accepted: held until the probes have arrived
    accepted,  // connecting side, has accepted: held until ready
    control,
    rdma,
    closed,
  };

  bool is_holding() const noexcept {
    return mode_ == Mode::asking || mode_ == Mode::offered || mode_ == Mode::probing ||
           mode_ == Mode::accepted;
  }
  void close(Errc reason, std::string text);

  // negotiation.cc
  bool pass_hello(const net::OutgoingFrame& frame);
  void offer_before(const net::OutgoingFrame& frame);
  void begin_offer();
  void take_offer(const wire::RdmaBody& remote);
  void take_accept(const wire::RdmaBody& remote);
  void take_decline(const wire::RefuseBody& body);
  bool make_path(std::string& why);
  void decline(const std::string& why, Errc code = Errc::unsupported);
  void decline(const std::string& why, Fault fault);
  void stay_on_control(const std::string& why);
  void move_to_rdma();
  void flush_held();
  int poll_negotiation();
  void give_up_set_up(const std::string& why, Fault fault);
  int poll_set_up();
  void handle_own_frame(const wire::FrameHeader& header);

  // From the control connection.
  void on_open(net::Connection&) override;
  bool on_header(net::Connection&, const wire::FrameHeader& header,
                 net::PayloadPlace& place) override;
  void on_frame(net::Connection&, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override;
  void on_closed(net::Connection&, Errc reason, const char* text) override;
  // From the queue pair.
  void on_message(std::span<const std::byte> bytes) override;
  bool begin_frame(std::span<const std::byte> bytes);

  RdmaTransport& transport_;
  net::ConnectionSink* sink_;
  net::Connection* connection_ = nullptr;
  std::string where_;  // the peer's address, for texts
  Mode mode_ = Mode::greeting;
  bool connects_ = false;
  bool asked_ = false;      // its hello has the bit, so the peer may offer
  bool offer_due_ = false;  // before the first frame to the peer
  Choice choice_ = Choice::if_possible;
  bool peer_has_rdma_ = false;
  std::string failed_text_;        // RDMA is required and cannot be had: closed in the next poll()
  std::uint64_t set_up_ns_ = 0;    // when its set-up began
  std::uint64_t deadline_ns_ = 0;  // of the set-up

  ControlChannel control_;
  HeldFrames held_;
  Attempts attempts_;
  CarriageNote note_;
  Silence silence_;  // of the queue pair
  std::shared_ptr<DataPath> path_;
  std::uint64_t path_received_ = 0;  // by paths that are gone
  net::FrameReceiver receiver_;      // of what arrives by RDMA

  // The control connection has ended; what has arrived by RDMA before is still delivered.
  struct ControlEnd {
    Errc reason;
    std::string text;
    std::uint64_t at_ns;
  };
  std::optional<ControlEnd> control_end_;
  std::string closed_text_;  // given to the sink
};

}  // namespace tern::rdma
