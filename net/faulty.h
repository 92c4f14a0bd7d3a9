#pragma once

// A transport that mistreats what is sent through it, from a seed: one seed is one run. What it
// breaks must be noticed and healed by the link above. For tests and the simulator.

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "net/transport.h"

namespace tern::net {

// Chances per million frames sent, each drawn for itself.
struct FaultSettings {
  std::uint32_t drop = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t reorder = 0;         // the frame is overtaken by the next one
  std::uint32_t delay = 0;           // by delay_min_ns to delay_max_ns; later frames wait behind it
  std::uint32_t corrupt_header = 0;  // one bit
  std::uint32_t corrupt_payload = 0;  // one bit
  std::uint32_t truncate = 0;         // the connection is cut in the middle of the frame
  std::uint32_t stall = 0;            // a part of the frame goes on, and nothing behind it
  std::uint32_t cut = 0;              // the connection is cut before the frame
  std::uint64_t delay_min_ns = 0;
  std::uint64_t delay_max_ns = 1'000'000;
};

struct FaultCounters {
  std::uint64_t frames = 0;
  std::uint64_t dropped = 0, duplicated = 0, reordered = 0, delayed = 0;
  std::uint64_t headers_corrupted = 0, payloads_corrupted = 0;
  std::uint64_t truncated = 0, cuts = 0;
};

class FaultyConnection;

// Faults happen to what this side sends. The inner transport outlives this one, and this one its
// connections.
class FaultyTransport final : public Transport {
 public:
  FaultyTransport(Transport& inner, const Clock& clock, const FaultSettings& settings,
                  std::uint64_t seed);

  const char* name() const noexcept override { return "faulty"; }
  std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) override;
  void hasten(const Endpoint& endpoint) override { inner_.hasten(endpoint); }
  std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                    ConnectionSink& sink) override;
  int poll() override;
  void flush() override { inner_.flush(); }
  bool prepare_sleep() override { return inner_.prepare_sleep(); }
  // What is sent is copied here; whether that is possible is still the carrier's to say.
  Status remember_memory(const Memory& memory) override { return inner_.remember_memory(memory); }
  void forget_memory(const Memory& memory) override { inner_.forget_memory(memory); }

  // From the next frame on.
  void set_settings(const FaultSettings& settings) { settings_ = settings; }
  // While partitioned, what is sent waits and connecting neither succeeds nor fails.
  void set_partitioned(bool partitioned) { partitioned_ = partitioned; }
  // Cuts all connections now.
  void cut_all();
  const FaultCounters& counters() const noexcept { return counters_; }
  // The earliest time at which a delayed frame is due.
  std::uint64_t next_deadline_ns() const noexcept;

 private:
  friend class FaultyConnection;
  bool chance(std::uint32_t per_million) {
    return per_million > 0 && draw(1'000'000) < per_million;
  }
  // Below `bound`; written out, because the standard's distributions differ between libraries.
  std::uint64_t draw(std::uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }

  Transport& inner_;
  const Clock& clock_;
  FaultSettings settings_;
  FaultCounters counters_;
  std::mt19937_64 random_;
  bool partitioned_ = false;
  std::vector<FaultyConnection*> connections_;  // null: destroyed since the last poll()
};

}  // namespace tern::net
