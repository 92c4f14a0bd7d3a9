#pragma once

// A link: one lane's exactly-once, in-order way to one peer. It numbers frames, acknowledges what
// it receives, keeps what the peer has not acknowledged, and when its connection breaks opens
// another and replays, byte for byte. If that does not succeed in time the link is lost, for good.
//
// Who connects: the daemon that wants to send first may; between two that both know each other the
// lower NodeId does (`active`). The other side waits to be connected to.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "net/transport.h"

namespace tern::net {

struct LinkSettings {
  std::uint64_t heartbeat_ns = 1'000'000'000;
  std::uint64_t peer_timeout_ns =
      5'000'000'000;  // nothing heard for so long: the connection is dead
  std::uint64_t resume_timeout_ns = 2'000'000'000;  // not re-opened for so long: the link is lost
  // Whose link it is closes it when nobody has used it for so long: a job's next group usually
  // begins sooner.
  std::uint64_t unused_timeout_ns = 10'000'000'000;
  // A frame whose next kFramePieceBytes, or end, have not come for so long breaks the protocol:
  // what it fills could be held for ever by a byte now and then. So does a peer that has not
  // acknowledged the oldest frame for so long and as long again for each such piece of it, in which
  // it has sent less than such a piece itself; and sixty times as long whatever it sends: what
  // frames borrow could be held for ever.
  std::uint64_t frame_timeout_ns = 60'000'000'000;
  static constexpr std::uint64_t kFramePieceBytes = 64 << 10;  // 9 kbit/s of a link
  std::uint64_t retry_ns = 50'000'000;                         // between two attempts to connect
  std::uint64_t ack_delay_ns = 1'000'000;  // an ack waits at most so long for company
  std::uint32_t ack_frames = 8;            // and for at most so many frames
  std::uint64_t ack_bytes = 512 << 10;     // and bytes
};

struct LinkStats {
  std::uint64_t frames_sent = 0, frames_received = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;  // payload of sequenced frames
  std::uint64_t resumes = 0, replayed_frames = 0;
  std::uint64_t bad_payloads = 0,
                refused_frames = 0;  // refused: gap, replay of an old one, bad header
  std::uint64_t peer_decode_ns = 0;  // from the peer's acks
  std::uint64_t peer_delivers = 0;   // bytes per second from there to here, as it says; 0: unknown
  std::uint64_t acked_bytes = 0;
  std::uint64_t round_trip_ns = 0;  // smoothed, from sequenced frame to its ack
  // The peer's clock less ours, from its acks; the error is kUnknown before the first.
  std::int64_t clock_offset_ns = 0;
  std::uint64_t clock_error_ns = kUnknown;
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
};

class Link;

// Thread: the lane's. Called from Link::poll()-time work only, never from inside send().
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  // Where the payload of this frame (sequenced, in sequence) goes. See PayloadPlace.
  virtual PayloadPlace place_payload(Link& link, const wire::FrameHeader& header) = 0;
  // The frame is complete, exactly once and in order. payload_valid false: its CRC is wrong. False
  // as the answer: the frame breaks the protocol; the link is lost with Errc::protocol_error.
  virtual bool on_frame(Link& link, const wire::FrameHeader& header, const PayloadPlace& place,
                        bool payload_valid) = 0;
  // The frame will not complete now (connection cut in its middle); it will be announced again.
  virtual void on_abandoned(Link& link, const wire::FrameHeader& header,
                            const PayloadPlace& place) = 0;
  // The peer has received the frame that was sent with this cookie; its memory may be reused.
  virtual void on_acked(Link& link, std::uint64_t cookie) = 0;
  // For good. All memory of unacknowledged frames is free again (their cookies are passed to
  // on_acked before, so that the owner has one place to release). Do not destroy the link in here.
  virtual void on_lost(Link& link, Errc reason, const char* text) = 0;
  // The peer has broken the protocol, or its connection was cut off inside a frame. That has cost
  // it the connection; the link may be resumed.
  virtual void on_breach(Link& /*link*/, const char* /*text*/) {}
};

enum class LinkState : std::uint8_t { connecting, open, broken, lost };

class Link final : private ConnectionSink {
 public:
  struct Identity {
    wire::NodeId self;
    wire::NodeId peer;  // all zero: learnt from the peer's hello (active links to an address only)
    std::uint16_t lane = 0;
    Endpoint endpoint;        // where to connect; unused on passive links
    bool active = false;      // this side connects
    std::uint64_t group = 0;  // which of the links between two lanes
  };

  struct Setup {
    LinkSettings settings;
    Identity identity;
  };

  // The transport, the clock and the sink outlive the link.
  Link(Transport& transport, const Clock& clock, Setup setup, LinkSink& sink);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Queues a sequenced frame: fills in magic, version, link_seq, ack_seq, sizes and CRCs. `prefix`
  // (at most kMaxPrefixBytes) is copied; `body` is borrowed until on_acked(cookie). cookie 0: no
  // on_acked wanted. Works in every state but lost (then it does nothing but on_acked is NOT
  // called; check state() first).
  void send(const wire::FrameHeader& header, std::span<const std::byte> prefix,
            std::span<const std::byte> body, std::uint64_t cookie);
  static constexpr std::size_t kMaxPrefixBytes = 64;

  // Copies `payload` into memory of the link's own (control frames, announcements).
  void send_copy(const wire::FrameHeader& header, std::span<const std::byte> payload,
                 std::span<const std::byte> payload_rest = {});

  // A connection that the peer opened, with its hello, for this (peer, lane). Decides: first hello,
  // resume of this session, or refusal. False: it belongs to a new session of a peer that has given
  // this link up; this link is now lost, and the caller offers the connection to a new link.
  bool offer(std::unique_ptr<Incoming>& incoming, const wire::HelloBody& hello);
  // Whether the peer resumes this link where its hello names that session.
  bool has_session(std::uint64_t session) const noexcept;

  // Timers: connect and retry, heartbeat, delayed ack, timeouts. Cheap; call once per round of
  // do_work. Returns the amount of work done.
  int tick();
  // For who has read the clock since the transport's poll().
  int tick(std::uint64_t now_ns);
  // The earliest time at which tick() has something to do.
  std::uint64_t next_deadline_ns() const noexcept;

  // Tells the peer that this daemon ends; the link is lost on both sides.
  void say_goodbye();
  // The link is lost at once, as after a breach that no frame shows.
  void give_up(Errc reason, const char* text);
  // Ends the link on this side at once, without on_lost.
  void close();

  // What has arrived is acknowledged at the next tick(): the peer waits for it, and nothing that
  // would carry the acknowledgement is sent.
  void acknowledge_soon() noexcept;

  // Reported to the peer in acks: time spent on its blocks, and what the carrier brings to it.
  void add_decode_ns(std::uint64_t ns) noexcept;
  void report_delivered(std::uint64_t bytes_per_s) noexcept;
  LinkState state() const noexcept;
  const Identity& identity() const noexcept;
  // HelloBody::features of the peer's last hello.
  std::uint64_t peer_features() const noexcept;
  // Whether the link ended in order: one of its ends did not want it any more.
  bool said_goodbye() const noexcept;
  const LinkStats& stats() const noexcept;
  Carriage carriage() const noexcept;  // of the connection, if there is one
  std::uint64_t unacked_frames() const noexcept;
  std::uint64_t unacked_bytes() const noexcept;
  // Memory of the link's own for frames that are not acknowledged.
  std::uint64_t held_bytes() const noexcept;
  // Of the present connection; nothing known while there is none.
  DeliveryRate delivery_rate() const;
  // Connection::bound_queue of the present connection; one that is opened later has no bound.
  void bound_queue(const QueueBound& bound);
  // Connection::hold_reading of the present connection; one that is opened later reads. While it is
  // said again and again, the peer's silence is not counted.
  void hold_reading(bool hold);

 private:
  void on_open(Connection& connection) override;
  bool on_header(Connection& connection, const wire::FrameHeader& header,
                 PayloadPlace& place) override;
  void on_frame(Connection& connection, const wire::FrameHeader& header, const PayloadPlace& place,
                bool payload_valid) override;
  void on_closed(Connection& connection, Errc reason, const char* text) override;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tern::net
