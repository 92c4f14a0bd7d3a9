#pragma once

// The inside of a Link: link.cc has its life and timers, link_hello.cc how a connection is opened
// and resumed, link_send.cc what goes out, link_receive.cc what comes in.
//
// Words: a connection is greeted when both hellos have passed on it; only then the link is open. To
// break is to give up the connection and try another; to lose is to give up the link.

#include <array>
#include <memory>
#include <string>

#include "net/arrivals.h"
#include "net/clock_offset.h"
#include "net/control_frames.h"
#include "net/frame_fifo.h"
#include "net/link.h"
#include "wire/hello.h"

namespace tern::net {

// A connection that is being refused: it lives until the other side has read why and closed.
class Refusal final : private ConnectionSink {
 public:
  struct Reason {
    Errc code;
    const char* text;
  };
  Refusal(Transport& transport, std::unique_ptr<Incoming> incoming, const Reason& reason,
          std::uint64_t deadline_ns);
  bool is_over(std::uint64_t now_ns) const noexcept { return closed_ || now_ns >= deadline_ns_; }
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }

 private:
  void on_open(Connection&) override {}
  bool on_header(Connection&, const wire::FrameHeader&, PayloadPlace&) override { return true; }
  void on_frame(Connection&, const wire::FrameHeader&, const PayloadPlace&, bool) override {}
  void on_closed(Connection&, Errc, const char*) override { closed_ = true; }

  wire::RefuseFrame frame_;
  std::uint64_t deadline_ns_;
  bool closed_ = false;
  std::unique_ptr<Connection> connection_;  // last: destroyed before the frame that it borrows
};

struct Link::State {
  struct Surroundings {
    Transport& transport;
    const Clock& clock;
    LinkSink& sink;
  };
  State(Link& link_in, const Surroundings& surroundings, Setup setup);

  Link& link;
  ConnectionSink& events;
  Transport& transport;
  const Clock& clock;
  const LinkSettings settings;
  Identity identity;
  LinkSink& sink;

  LinkState state = LinkState::connecting;
  LinkStats stats;
  std::uint64_t session = 0;  // zero on a passive link before its first hello
  std::uint16_t version = wire::kWireProtocol;
  std::uint64_t peer_features = 0;
  bool was_open = false;
  bool said_goodbye = false;
  bool closed_here = false;  // by close(): no callbacks any more

  // The connection, present also while it is being opened.
  std::unique_ptr<Connection> connection;
  std::unique_ptr<Refusal> refusal;
  std::uint64_t offset = 0;  // bytes given to the connection so far
  std::uint64_t heard_bytes = 0;
  std::uint64_t heard_ns = 0;
  std::uint64_t attempt_ns = 0;  // when the current or last attempt to connect began
  std::uint64_t give_up_ns = 0;  // while not open: when the link is lost
  std::string last_trouble;      // why the last attempt or connection ended

  // Outgoing.
  FrameFifo unacked;
  ControlFrames control;
  std::uint64_t sent_ns = 0;  // when anything was last sent

  // Incoming.
  Arrivals arrivals;
  ClockOffset clock_offset;
  struct Announced {
    bool is_pending = false;  // place_payload has been called, on_frame not yet
    wire::FrameHeader header;
    PayloadPlace place;
  };
  Announced announced;
  // Of the frame that is arriving, its last piece that was there in time.
  struct Piece {
    std::uint64_t link_seq = 0;  // of the frame; 0: none is arriving
    std::uint64_t received_bytes = 0;
    std::uint64_t since_ns = 0;
  };
  Piece piece;
  // The oldest frame, once the carrier has taken it: when tick() saw that first, whatever connections
  // come and go, and when as much as a piece of a frame had last come from the peer.
  struct Awaited {
    std::uint64_t link_seq = 0;  // 0: there is none
    std::uint64_t first_ns = 0;
    std::uint64_t received_bytes = 0;
    std::uint64_t since_ns = 0;  // 0: not yet on this connection
  };
  Awaited awaited;
  // Longer than any daemon's queue takes on a network that a job can use.
  static constexpr std::uint64_t kMostTimeouts = 60;
  std::array<std::byte, sizeof(wire::RefuseBody)> control_payload;

  // link.cc
  int tick(std::uint64_t now);
  int tick_closed(std::uint64_t now);
  int tick_open(std::uint64_t now);
  bool is_frame_overdue(std::uint64_t now) noexcept;
  bool is_ack_overdue(std::uint64_t now) noexcept;
  std::uint64_t next_deadline_ns() const noexcept;
  // From connect() to the hello's answer. There must be time for a second attempt before either
  // side gives up.
  std::uint64_t attempt_timeout_ns() const noexcept {
    return (settings.resume_timeout_ns + (was_open ? 0 : settings.peer_timeout_ns)) / 2;
  }
  void drop_connection();
  void break_connection(const char* why);
  void break_for_breach(const char* why);
  void connection_closed(Errc reason, const char* text);
  void lose(Errc reason, std::string text);
  void release_all();

  // link_hello.cc
  void connect(std::uint64_t now);
  void say_hello(wire::FrameKind kind);
  bool offer(std::unique_ptr<Incoming>& incoming, const wire::HelloBody& hello);
  void accept(std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello);
  void refuse(std::unique_ptr<Incoming> incoming, Errc code, const char* text);
  void finish_hello_reply(const wire::FrameHeader& header);
  void finish_refuse();
  void open(std::uint64_t peer_next_receive, std::uint16_t common_version);

  // link_send.cc
  void seal(const wire::FrameHeader& header, const FrameFifo::Payload& payload);
  void transmit(FrameRecord& record, std::uint64_t now);
  void send_new(FrameRecord& record);
  bool send_control(std::span<const std::byte> frame);
  bool send_control(wire::FrameKind kind, std::span<const std::byte> payload = {});
  bool send_ack(std::uint64_t now);
  std::uint64_t taken() const noexcept { return offset - connection->queued_bytes(); }

  // link_receive.cc
  bool on_header(const wire::FrameHeader& header, PayloadPlace& place);
  struct ControlHandler;
  bool begin_control(const wire::FrameHeader& header, PayloadPlace& place);
  void finish_control(const wire::FrameHeader& header, bool payload_valid);
  void finish_ack(const wire::FrameHeader& header);
  void on_frame(const wire::FrameHeader& header, const PayloadPlace& place, bool payload_valid);
  void note_clock(std::uint64_t ack_seq, std::uint64_t receiver_ns);
  void report_clock();
  bool take_ack(std::uint64_t ack_seq);
  void release_through(std::uint64_t seq);
};

}  // namespace tern::net
