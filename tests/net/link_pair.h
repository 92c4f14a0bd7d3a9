#pragma once

// Two links that talk to each other over any transport, and sinks that write down what happens.

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/link.h"
#include "net/transport.h"
#include "wire/frame.h"

namespace tern::net {

inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t i = 0; i < size; ++i) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<std::byte>(word >> 56);
  }
  return bytes;
}

inline wire::FrameHeader block_header(std::uint64_t number,
                                      wire::FrameKind kind = wire::FrameKind::contribution) {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.tensor = number;
  return header;
}

struct ReceivedFrame {
  wire::FrameHeader header;
  std::vector<std::byte> payload;
  bool payload_valid = false;
};

// Takes every frame into memory of its own.
class RecordingSink final : public LinkSink {
 public:
  PayloadPlace place_payload(Link&, const wire::FrameHeader& header) override {
    EXPECT_FALSE(placing_) << "two frames at once on one link";
    placing_ = true;
    ++placed;
    if (discard_next) {
      discard_next = false;
      return {};
    }
    payload_.assign(header.payload_bytes, std::byte{0xee});
    const std::size_t split = std::min(prefix_bytes, payload_.size());
    return {std::span(payload_).first(split), std::span(payload_).subspan(split)};
  }
  bool on_frame(Link& link, const wire::FrameHeader& header, const PayloadPlace& place,
                bool payload_valid) override {
    EXPECT_TRUE(placing_);
    placing_ = false;
    const std::size_t size = place.prefix.size() + place.body.size();
    received.push_back({header, size == 0 ? std::vector<std::byte>() : payload_, payload_valid});
    if (also_on_frame) also_on_frame(link);
    return accept;
  }
  void on_breach(Link&, const char*) override { ++breaches; }
  void on_abandoned(Link&, const wire::FrameHeader&, const PayloadPlace&) override {
    EXPECT_TRUE(placing_);
    placing_ = false;
    ++abandoned;
  }
  void on_acked(Link& link, std::uint64_t cookie) override {
    EXPECT_EQ(lost, 0) << "cookies are released before the link is lost";
    ++acked[cookie];
    if (also_on_acked) also_on_acked(link, cookie);
  }
  void on_lost(Link&, Errc reason, const char* text) override {
    EXPECT_FALSE(placing_) << "the place of a half frame is given back first";
    ++lost;
    lost_reason = reason;
    lost_text = text;
  }

  std::vector<ReceivedFrame> received;
  std::map<std::uint64_t, int> acked;
  std::size_t prefix_bytes = 64;
  bool discard_next = false;
  bool accept = true;
  int placed = 0;
  int abandoned = 0;
  int breaches = 0;
  int lost = 0;
  Errc lost_reason = Errc::ok;
  std::string lost_text;
  std::function<void(Link&)> also_on_frame;
  std::function<void(Link&, std::uint64_t)> also_on_acked;

 private:
  bool placing_ = false;
  std::vector<std::byte> payload_;
};

class RecordingAcceptorSink final : public AcceptorSink {
 public:
  struct Offered {
    std::unique_ptr<Incoming> incoming;
    wire::HelloBody hello;
  };
  void on_incoming(std::unique_ptr<Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    if (take) {
      take(std::move(incoming), hello);
    } else {
      offered.push_back({std::move(incoming), hello});
    }
  }
  void on_refused(const std::string&, Errc reason, const char* text) override {
    refused.push_back({reason, text});
  }

  std::function<void(std::unique_ptr<Incoming>, const wire::HelloBody&)> take;
  std::deque<Offered> offered;
  std::vector<std::pair<Errc, std::string>> refused;
};

}  // namespace tern::net
