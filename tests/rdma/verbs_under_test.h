#pragma once

// The device that a test program runs on: the kernel's (real_verbs.cc) or the mock (mock_verbs.cc).

#include <memory>

#include "rdma/rdma_settings.h"

namespace tern::rdma {

// These tests are of what is sent and not of how fast, on whatever machine.
inline constexpr std::uint64_t kPatienceNs = 60'000'000'000;

class VerbsUnderTest {
 public:
  virtual ~VerbsUnderTest() = default;
  // For the tests that run on both. Held as long as anything of the device is open.
  static std::unique_ptr<VerbsUnderTest> make();
  // Settings that find the device.
  virtual RdmaSettings settings() const = 0;
};

}  // namespace tern::rdma
