#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "collective/slots.h"
#include "daemon/lane/stock.h"
#include "daemon/service/turn_counters.h"
#include "net/link.h"
#include "wire/block.h"

namespace tern::daemon {

struct LaneSettings {
  std::uint32_t lane = 0;
  std::uint64_t chunk_bytes = 256 << 10;
  std::uint32_t receive_slabs = 64;
  std::uint32_t send_slabs = 64;
  std::uint32_t result_slabs = 32;
  std::uint64_t port_bytes = 0;  // what a port of the switch between nodes holds; 0: not known
  // Idle for so long, the lane gives the pages of its slabs back to the kernel: long enough not to
  // touch them anew in every step of a training run.
  std::uint64_t keep_pages_ns = 3'000'000'000;
  net::LinkSettings link;

  // The largest block: no recipe is used whose worst case is larger than the raw chunk.
  std::size_t block_bytes() const { return chunk_bytes + wire::kBlockHeaderBytes; }

  Stock accumulators() const { return with_reserve(2 * result_slabs); }
  // A chunk that is granted needs one for each other node.
  Stock receive() const { return {receive_slabs, std::max(receive_slabs / 4, others())}; }
  Stock contributions() const { return with_reserve(send_slabs); }
  Stock results() const { return with_reserve(result_slabs); }
  // A chunk of f16 has an f32 accumulator of twice its size.
  std::size_t accumulator_bytes() const { return 2 * chunk_bytes; }
  // What all of that may take.
  std::uint64_t slab_bytes() const {
    const std::uint64_t blocks =
        std::uint64_t{receive().all()} + contributions().all() + results().all();
    return blocks * block_bytes() + accumulators().all() * std::uint64_t{accumulator_bytes()};
  }

 private:
  static constexpr std::uint32_t others() { return collective::kMaxNodes - 1; }
  static Stock with_reserve(std::uint32_t shared) { return {shared, (shared + 3) / 4}; }
};

// Written by the lane, read by anybody; daemon/metrics/counter_table.h documents each.
struct LaneWorkCounters {
  std::atomic<std::uint64_t> ops_completed{0}, ops_failed{0};
  std::atomic<std::uint64_t> entries{0}, bad_entries{0};
  std::atomic<std::uint64_t> unknown_group_frames{0}, bad_frames{0}, bad_blocks{0}, bad_payloads{0};
  std::atomic<std::uint64_t> links_lost{0}, dropped_records{0}, nonfinite_chunks{0};
  std::atomic<std::uint64_t> client_blocks{0};
  std::atomic<std::uint64_t> links_turned_away{0}, sleeps{0};
  // What the lane's time goes into: in rounds that did work, of that in codecs, and how many bytes
  // and blocks travelled meanwhile.
  std::atomic<std::uint64_t> busy_ns{0}, codec_ns{0}, block_bytes{0}, blocks{0};
  std::atomic<std::uint64_t> samples{0};
  // How much waits, as of the last tenth of a second.
  std::atomic<std::uint64_t> ops_now{0}, unacked_now{0}, waiting_now{0};
};

struct LaneCounters : LaneWorkCounters, TurnCounters {};

}  // namespace tern::daemon
