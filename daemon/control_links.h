#pragma once

// The links between conductors: each carries JSON control frames. One that this daemon opened is
// known by its address, one that was opened to it by its peer's node id.

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/control_frames.h"
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
  };

  ControlLinks(net::Transport& transport, const Clock& clock, const net::LinkSettings& settings,
               wire::NodeId self, Sink& sink);
  ~ControlLinks() override;

  LinkRef open(const net::Endpoint& endpoint);
  void adopt(std::unique_ptr<net::Incoming> incoming, const wire::HelloBody& hello);
  bool is_open(LinkRef link) const;
  void send(LinkRef to, const nlohmann::json& message);
  int do_work();  // timers and deliveries; the transport is polled in here
  std::uint64_t next_deadline_ns() const;
  void say_goodbye();

  struct Row {
    std::string peer;  // node id, or the address while it is not known
    std::string address;
    net::LinkState state;
    net::LinkStats stats;
    std::uint64_t unacked_frames;
    net::Carriage carriage;
  };
  std::vector<Row> rows() const;

 private:
  struct Peer {
    LinkRef ref = 0;
    wire::NodeId node;
    net::Endpoint endpoint;
    std::unique_ptr<net::Link> link;
    std::vector<std::byte> buffer;
    bool lost = false;
    Errc reason = Errc::ok;
    std::string why;
  };

  net::PayloadPlace place_payload(net::Link& link, const wire::FrameHeader& header) override;
  bool on_frame(net::Link& link, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override;
  void on_abandoned(net::Link&, const wire::FrameHeader&, const net::PayloadPlace&) override {}
  void on_acked(net::Link&, std::uint64_t) override {}
  void on_lost(net::Link& link, Errc reason, const char* text) override;
  Peer* peer_of(const net::Link& link);
  Peer& add(const wire::NodeId& node, const net::Endpoint& endpoint, bool active);

  net::Transport& transport_;
  const Clock& clock_;
  net::LinkSettings settings_;
  wire::NodeId self_;
  Sink& sink_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::pair<LinkRef, nlohmann::json>> received_;
  LinkRef next_ref_ = 1;
};

}  // namespace tern::daemon
