#pragma once

// The links between conductors: each carries JSON control frames. One that this daemon opened is
// known by its address, one that was opened to it by its peer's node id.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/membership/control_frames.h"
#include "daemon/service/shared_places.h"
#include "net/link.h"

namespace tern::daemon {

class ControlLinks final : private net::LinkSink {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void on_control_message(LinkRef from, const nlohmann::json& message) = 0;
    virtual void on_control_link_lost(LinkRef link, Errc reason, bool worked,
                                      const std::string& why) = 0;
    // The peer broke the protocol, and has lost its connection by it. Only to be noted.
    virtual void on_control_breach(const std::string& peer, const std::string& text) = 0;
  };

  // What the links work with. The transport and the clock outlive them.
  struct Base {
    net::Transport& transport;
    const Clock& clock;
    net::LinkSettings settings;
    wire::NodeId self;  // this daemon
  };

  ControlLinks(const Base& base, Sink& sink);
  ~ControlLinks() override;

  // One link for all users of the same address.
  LinkRef open(const net::Endpoint& endpoint);
  // False: there are too many, or too many of its source; the connection is closed.
  bool adopt(std::unique_ptr<net::Incoming> incoming, const wire::HelloBody& hello);
  bool is_open(LinkRef link) const;
  // Its address, or its node id where that is not known.
  std::string name_of(LinkRef link) const;
  // Who is charged for what comes by the link, in words.
  std::string source_of(LinkRef link) const;
  // Closes links that nobody needs; `in_use` are the others. One that this daemon opened goes at
  // once while it is not open, else after a while. One that was opened to it has its peer to close
  // it, and goes after a longer while.
  void close_unused(const std::set<LinkRef>& in_use);
  // The text of a JSON object.
  void send_text(LinkRef to, const std::string& text);
  // Timers and deliveries; the transport is polled in here. What there is no time for is left for
  // the next call: of messages, each link's in turn. While these are kept waiting, links receive no
  // more than they have room for.
  enum class Messages { read, kept_waiting };
  int do_work(Messages messages = Messages::read);
  std::uint64_t next_deadline_ns() const;
  void say_goodbye();

  // What each peer is told when its link opens, and now and then after that: `t` is "about".
  void set_about(std::function<nlohmann::json()> about) { about_ = std::move(about); }
  // What the peer says of itself.
  void on_about(LinkRef from, const nlohmann::json& message);

  struct Row {
    std::string peer;  // node id, or the address while it is not known
    std::string address;
    net::LinkState state;
    net::LinkStats stats;
    std::uint64_t unacked_frames;
    std::string software;          // version of the peer's daemon; empty: it has not said
    std::int64_t calendar_ns = 0;  // what its calendar is ahead of its own clock
    net::Carriage carriage;
  };
  std::vector<Row> rows() const;

 private:
  struct Peer {
    LinkRef ref = 0;
    wire::NodeId node;
    net::Endpoint endpoint;
    std::unique_ptr<net::Link> link;
    std::unique_ptr<std::byte[]> buffer;  // of the message that arrives
    std::string source;
    std::optional<SharedPlaces::Held> place;  // none: opened here
    std::optional<SharedPlaces::Held> large;  // while a large message arrives
    std::string breach;                       // more exactly than the link can say it
    bool lost = false;
    Errc reason = Errc::ok;
    std::string why;
    std::uint64_t unused_ns = 0;  // since when; 0: in use
    std::uint64_t about_due_ns = 0;
    std::deque<std::string> received;  // and not read yet
    std::size_t received_bytes = 0;    // of these
    std::uint64_t abouts = 0;          // received: they answer nothing
    std::string software;
    std::int64_t calendar_ns = 0;
  };

  net::PayloadPlace place_payload(net::Link& link, const wire::FrameHeader& header) override;
  bool on_frame(net::Link& link, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override;
  void on_abandoned(net::Link& link, const wire::FrameHeader& header,
                    const net::PayloadPlace& place) override;
  void on_acked(net::Link&, std::uint64_t) override {}
  void on_lost(net::Link& link, Errc reason, const char* text) override;
  void on_breach(net::Link& link, const char* text) override;
  static bool is_of(const Peer& peer, const wire::NodeId& node);
  static std::string name_of(const Peer& peer);
  void send_text(Peer& peer, const std::string& text);
  // So that as much more may be kept for the peer. Whoever holds most must go for it, perhaps the
  // peer itself.
  void make_room(Peer& peer, std::size_t bytes);
  static std::string source_of(const Peer& peer);
  void break_off(Peer& peer, std::string why);
  void tell_about(Peer& peer);
  Peer* peer_of(const net::Link& link);
  Peer* find(LinkRef link) const;
  int pass_on();
  void pass_on(Peer& peer, const std::string& text);
  int tell_lost();
  Peer& add(const wire::NodeId& node, const net::Endpoint& endpoint, bool active);

  net::Transport& transport_;
  const Clock& clock_;
  net::LinkSettings settings_;
  wire::NodeId self_;
  Sink& sink_;
  std::function<nlohmann::json()> about_;
  SharedPlaces places_;  // of links that peers have opened
  SharedPlaces large_;   // of large messages that arrive
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<LinkRef> waiting_;  // links with messages that are not read yet, each once
  LinkRef next_ref_ = 1;
};

}  // namespace tern::daemon
