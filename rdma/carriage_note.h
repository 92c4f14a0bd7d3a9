#pragma once

// What people are told of a connection beside its carrier's name: why it is not on RDMA, or on
// which device it is and whether frames are copied before the device sends them.

#include <cstdint>
#include <string>

#include "rdma/lane_memory.h"

namespace tern::rdma {

class CarriageNote {
 public:
  void stay(const std::string& why) { text_ = why; }
  void move_to(const std::string& device) {
    text_ = device;
    told_revision_ = 0;
  }
  // While frames travel over this device: what is copied may change with every frame.
  void follow(const std::string& device, const LaneMemory& memory) {
    if (told_revision_ == memory.trouble_revision()) return;
    told_revision_ = memory.trouble_revision();
    text_ = device;
    if (!memory.trouble().empty()) text_ += "; frames are copied: " + memory.trouble();
  }
  const char* text() const noexcept { return text_.c_str(); }

 private:
  std::string text_;
  std::uint64_t told_revision_ = 0;  // of the memory's trouble
};

}  // namespace tern::rdma
