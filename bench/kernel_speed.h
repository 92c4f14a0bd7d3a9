#pragma once

#include <cstddef>
#include <string>

#include "bench/kernel_cases.h"
#include "bench/kernel_device.h"
#include "bench/kernel_values.h"

namespace tern::bench {

// A kernel at one chunk size.
struct KernelRow {
  const KernelCase* what;
  std::size_t chunk_kib;
  LaunchTimes times;
  double elements = 0;           // of a launch
  double bytes_per_element = 0;  // of the device's memory
  std::string left_out;          // why it was not measured
  std::string failure;           // also if only what it wrote was wrong

  bool measured() const noexcept { return times.median_us > 0; }
  double gb_per_s() const noexcept { return bytes_per_element * elements / times.median_us * 1e-3; }
  double gelements_per_s() const noexcept { return elements / times.median_us * 1e-3; }
};

// Measures kernels, and what they are compared with.
class KernelMeter {
 public:
  // Requires: what it is given outlives it; rounds > 0.
  KernelMeter(const KernelDevice& device, const KernelValues& values, std::size_t rounds) noexcept
      : device_(device), values_(values), rounds_(rounds) {}

  // Of copies as long as an input: what is read and what is written, in 10^9 bytes per second.
  Result<double> copy_gb_per_s() const;

  KernelRow measure(const KernelCase& what, std::size_t chunk_kib) const;

 private:
  Status run(KernelRow& row) const;

  const KernelDevice& device_;
  const KernelValues& values_;
  std::size_t rounds_;
};

}  // namespace tern::bench
