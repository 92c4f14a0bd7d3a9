#pragma once

#include <array>
#include <memory>
#include <string>

#include "bench/kernel_cases.h"
#include "bench/kernel_device.h"
#include "bench/kernel_values.h"

namespace tern::bench {

// A kernel on a device, with all that its launches read and write.
struct RunSetting {
  const KernelDevice& device;
  const KernelValues& values;
  const KernelCase& what;
  codec::Recipe recipe;
  std::uint32_t elements;  // of a chunk

  std::size_t element_bytes() const noexcept {
    return what.task == KernelTask::encode_lossless ? 2 : 4;
  }
  // Whole ones.
  std::uint32_t chunks() const noexcept {
    return static_cast<std::uint32_t>(values.bytes() / (elements * element_bytes()));
  }
  // Those that are compared with the processor's.
  std::array<std::uint32_t, 3> sampled_chunks() const noexcept {
    return {0, chunks() / 2, chunks() - 1};
  }
  // Of the elements of a chunk, in floats() and in scratch().
  std::size_t begin(std::uint32_t chunk) const noexcept { return std::size_t{chunk} * elements; }

  Status launch(void** parameters) const {
    const auto shared = static_cast<std::uint32_t>(shared_bytes(what, recipe, elements));
    return device.launch({what.kernel, chunks(), shared, parameters});
  }
};

class KernelRun {
 public:
  virtual ~KernelRun() = default;

  // Enqueues a launch over all chunks.
  virtual Status launch() = 0;
  // Of the device's memory, for each element, in the launch that was the last to be done: what the
  // task has to read and write if it does either once (twice: what the kernel is designed to read
  // twice). Fails if that launch failed for a chunk.
  virtual Result<double> bytes_per_element() = 0;
  // Launches once more, and compares some chunks with what the processor's codec makes of them.
  // Empty, or what differs.
  virtual Result<std::string> difference() = 0;
};

// Requires: what the setting names outlives the run; it has a chunk, and the device has the shared
// memory.
Result<std::unique_ptr<KernelRun>> make_encode_run(const RunSetting& setting);
Result<std::unique_ptr<KernelRun>> make_lossless_run(const RunSetting& setting);
Result<std::unique_ptr<KernelRun>> make_decode_run(const RunSetting& setting);

inline std::string bytes_differ(const char* what, std::uint32_t chunk) {
  return std::string("bytes differ: ") + what + " of chunk " + std::to_string(chunk);
}

}  // namespace tern::bench
