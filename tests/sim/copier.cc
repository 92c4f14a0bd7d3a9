#include "copier.h"

#include <algorithm>

namespace tern::sim {

Copier::Copier(const shm::CopyProgress& progress, const Memory& memory, std::uint64_t seed)
    : progress_(progress),
      memory_(memory),
      random_(seed),
      values_(memory.input.begin(), memory.input.end()),
      next_(progress.shape().lanes) {
  std::fill(memory.input.begin(), memory.input.end(), std::byte{0xa5});
  if (memory_.order.empty()) memory_.order = {{0, values_.size()}};
}

bool Copier::step() {
  if (stopped_ || is_filled() || random_() % 3 != 0) return take();
  fill(filled_ + 1 + random_() % (8 << 10));
  return true;
}

void Copier::fill(std::size_t end) {
  end = std::min(values_.size(), end);
  std::size_t before = 0;  // bytes of the parts that come first
  for (const auto& [offset, bytes] : memory_.order) {
    for (; filled_ < std::min(end, before + bytes); ++filled_) {
      memory_.input[offset + filled_ - before] = values_[offset + filled_ - before];
    }
    before += bytes;
  }
  progress_.raise_input(filled_);
}

bool Copier::take() {
  bool any = false;
  for (std::uint32_t lane = 0; lane < next_.size(); ++lane) {
    for (; next_[lane] < progress_.delivered_records(lane); ++next_[lane], any = true) {
      const auto record = progress_.record(lane, static_cast<std::uint32_t>(next_[lane]));
      taken_bytes_ += record.bytes;
      if (record.offset > memory_.output.size() ||
          record.bytes > memory_.output.size() - record.offset) {
        taken_.push_back({record, {}});
        continue;
      }
      const auto bytes = memory_.output.subspan(record.offset, record.bytes);
      taken_.push_back({record, {bytes.begin(), bytes.end()}});
    }
  }
  return any || (!stopped_ && !is_filled());
}

std::string Copier::wrong_in_lists() const {
  std::vector<bool> listed(memory_.output.size());
  for (const Taken& piece : taken_) {
    const std::string where = "bytes from " + std::to_string(piece.record.offset);
    if (piece.bytes.size() != piece.record.bytes) return where + ": outside the output";
    const auto now = memory_.output.subspan(piece.record.offset, piece.record.bytes);
    if (!std::equal(now.begin(), now.end(), piece.bytes.begin())) return where + ": changed since";
    for (std::uint64_t i = 0; i < piece.record.bytes; ++i) {
      if (listed[piece.record.offset + i]) return where + ": listed twice";
      listed[piece.record.offset + i] = true;
    }
  }
  return "";
}

}  // namespace tern::sim
