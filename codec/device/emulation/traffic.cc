#include "codec/device/emulation/traffic.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <tuple>

namespace tern::codec::device::emulation {
namespace {

constexpr std::uint64_t kSector = 32;
constexpr std::uint64_t kBankWord = 4;
constexpr std::uint64_t kBanks = 32;
constexpr std::size_t kWarp = 32;
constexpr std::uint64_t kWide = 16;

std::uint64_t sectors_of(std::span<const LaneAccess> lanes) {
  std::set<std::uint64_t> sectors;
  for (const LaneAccess& lane : lanes) {
    for (std::uint64_t at = lane.address / kSector; at * kSector < lane.address + lane.bytes;
         ++at) {
      sectors.insert(at);
    }
  }
  return sectors.size();
}

// The most different words that one bank has to give.
std::uint64_t passes_of(std::span<const LaneAccess> lanes) {
  std::array<std::set<std::uint64_t>, kBanks> words;
  for (const LaneAccess& lane : lanes) {
    const std::uint64_t end = lane.address + lane.bytes;
    for (std::uint64_t word = lane.address / kBankWord; word * kBankWord < end; ++word) {
      words[word % kBanks].insert(word);
    }
  }
  std::uint64_t most = 0;
  for (const auto& bank : words) most = std::max<std::uint64_t>(most, bank.size());
  return most;
}

void add(std::span<const LaneAccess> lanes, Traffic& traffic) {
  const LaneAccess& first = lanes.front();
  if (first.is_global) {
    const std::uint64_t bytes = kSector * sectors_of(lanes);
    (first.is_write ? traffic.global_bytes_written : traffic.global_bytes_read) += bytes;
    for (const LaneAccess& lane : lanes) {
      traffic.global_bytes_asked += lane.bytes;
      if (lane.bytes == kWide) traffic.global_bytes_wide += lane.bytes;
    }
    return;
  }
  // An access of 8 or 16 bytes a lane is served for a half or a quarter of the warp at a time.
  const std::size_t part = kWarp * kBankWord / std::max<std::size_t>(kBankWord, first.bytes);
  for (std::size_t begin = 0; begin < lanes.size(); begin += part) {
    ++traffic.shared_accesses;
    traffic.shared_passes += passes_of(lanes.subspan(begin, std::min(part, lanes.size() - begin)));
  }
}

}  // namespace

std::uint32_t TrafficMeter::number_of(const Site& site) {
  const auto next = static_cast<std::uint32_t>(sites_.size());
  return sites_.try_emplace({site.file, site.line}, next).first->second;
}

void TrafficMeter::note(std::uint32_t thread, const Site& site, const LaneAccess& access) {
  const std::uint32_t number = number_of(site);
  std::vector<std::uint32_t>& times = lanes_[thread];
  if (times.size() <= number) times.resize(number + 1);
  records_.push_back({thread / static_cast<std::uint32_t>(kWarp), number, times[number]++, access});
}

void TrafficMeter::settle(Traffic& traffic) {
  const auto key = [](const Record& record) {
    return std::tuple(record.warp, record.site, record.time, record.access.is_global,
                      record.access.is_write);
  };
  const auto order = [&key](const Record& a, const Record& b) {
    return std::tuple_cat(key(a), std::tuple(a.access.address)) <
           std::tuple_cat(key(b), std::tuple(b.access.address));
  };
  std::sort(records_.begin(), records_.end(), order);
  std::vector<LaneAccess> lanes;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    lanes.push_back(records_[i].access);
    if (i + 1 == records_.size() || key(records_[i]) != key(records_[i + 1])) {
      add(lanes, traffic);
      lanes.clear();
    }
  }
  records_.clear();
  for (auto& times : lanes_) times.clear();
}

}  // namespace tern::codec::device::emulation
