#pragma once

// One connection: rdma_stream.cc has its life and its frames, negotiation.cc how it is moved to a
// queue pair (wire/rdma.h has the frames of that).

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "net/frame_receiver.h"
#include "net/outgoing_queue.h"
#include "net/transport.h"
#include "rdma/data_path.h"
#include "rdma/rdma_transport.h"
#include "wire/hello.h"
#include "wire/rdma.h"

namespace tern::rdma {

inline constexpr const char* kPeerHasNone = "the peer has no RDMA, or is told not to use it";
inline constexpr const char* kBrokenOrder = "the peer broke the order of the RDMA set-up";

// Shared by the Connection that its user holds and the transport. Once the user has destroyed the
// Connection, sink is null and nothing is done any more.
class RdmaStream final : private net::ConnectionSink, private MessageSink {
 public:
  // `peer` is the key of what is known of the peer.
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
  void bound_queue(std::size_t bytes);
  bool wants_payload_crc() const noexcept {
    return mode_ != Mode::rdma || receiver_.checks_payload();
  }

  int poll();
  bool arm();
  const DataPath* path() const noexcept { return path_.get(); }
  bool is_on_control() const noexcept { return mode_ != Mode::rdma; }
  // The device is gone: `why` says how.
  void device_failed(const std::string& why) { fail_over(why, Fault::ours); }
  void take_event(const Device::Broken& broken);
  const std::string& peer() const noexcept { return peer_; }

 private:
  // What an attempt failed by. A path is tried ever more rarely, since frames wait meanwhile.
  enum class Fault : std::uint8_t { ours, path };
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
  void fail_over(const std::string& why, Fault fault);
  void tell_of_copies();

  // negotiation.cc
  bool pass_hello(const net::OutgoingFrame& frame);
  void offer_before(const net::OutgoingFrame& frame);
  void begin_offer();
  void take_offer(const wire::RdmaBody& remote);
  void take_accept(const wire::RdmaBody& remote);
  void take_ready();
  void take_decline(const wire::RefuseBody& body);
  bool must_wait(const PeerTrouble& trouble) const;
  bool make_path(std::string& why);
  void decline(const std::string& why, Errc code = Errc::unsupported);
  void decline(const std::string& why, Fault fault);
  void stay_on_control(const std::string& why);
  void move_to_rdma();
  void flush_held();
  void send_own(std::span<const std::byte> frame);
  int poll_negotiation();
  void note_failure(const std::string& why, Fault fault);
  void give_up_set_up(const std::string& why, Fault fault);
  bool has_worked() const;
  void forget_failures();
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
  std::string peer_;
  std::string where_;  // the peer's address, for texts
  Mode mode_ = Mode::greeting;
  bool connects_ = false;
  bool asked_ = false;      // its hello has the bit, so the peer may offer
  bool offer_due_ = false;  // before the first frame to the peer
  Choice choice_ = Choice::if_possible;
  bool peer_has_rdma_ = false;
  std::string note_;               // why it is not on RDMA; on RDMA, the device
  std::uint64_t deadline_ns_ = 0;  // of the negotiation
  std::string failed_text_;        // RDMA is required and cannot be had: closed in the next poll()
  std::uint64_t retry_at_ns_ = 0;  // on control: when to offer again; 0: never
  std::uint64_t next_offer_ns_ = 0;   // before that none of the peer's is taken
  std::uint64_t set_up_ns_ = 0;       // when its set-up began
  std::uint64_t opened_ns_ = 0;       // when it moved to RDMA
  std::uint64_t progress_ = 0;        // of the path, at the last look
  std::uint64_t quiet_since_ns_ = 0;  // something is under way, and nothing has come or gone since
  std::uint32_t declines_ = 0;        // of our offers by the peer, one after the other
  std::uint64_t told_revision_ = 0;   // of what the note says of copies

  std::unique_ptr<net::Connection> control_;
  std::uint64_t control_given_ = 0;  // bytes, and where in them our own frames lie
  std::uint64_t own_end_ = 0;
  std::uint64_t own_bytes_ = 0;
  std::shared_ptr<DataPath> path_;
  std::uint64_t path_received_ = 0;  // by paths that are gone
  net::OutgoingQueue held_;
  std::size_t held_bytes_ = 0;

  // The control connection has ended; what has arrived by RDMA before is still delivered.
  bool control_over_ = false;
  Errc over_reason_ = Errc::ok;
  std::string over_text_;
  std::uint64_t over_ns_ = 0;

  // Own frames, borrowed by the control connection.
  wire::HelloFrame hello_;
  wire::RdmaFrame setup_frame_;
  wire::FrameHeader ready_frame_;
  wire::RdmaDeclineFrame decline_frame_;
  std::array<std::byte, sizeof(wire::RefuseBody)> own_payload_;

  net::FrameReceiver receiver_;  // of what arrives by RDMA
};

}  // namespace tern::rdma
