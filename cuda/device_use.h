#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "cuda/include/tern/cuda.h"
#include "cuda/parameters.h"

// What a session holds and has done on its device: the program asks for it by tern_cuda_get_stats,
// and the daemon is told of it by reports.
namespace tern::cuda {

// Thread: any.
class DeviceUse {
 public:
  void hold(const HeldBytes& bytes);
  void let_go(const HeldBytes& bytes);
  void pinning_failed(const std::string& why);
  // How long the device took; 0: the driver does not know.
  void encoded(std::uint64_t ns);
  void decoded(std::uint64_t ns);
  void went_raw(std::uint64_t chunks);
  void decoded_by_processor(std::uint64_t blocks);
  void ended(bool has_succeeded);

  tern_cuda_stats stats() const;

  struct Report {
    tern_device_report numbers;   // its text is not set
    std::string pinning_problem;  // empty: there was none
  };
  Report report() const;
  // Another number where a report says something new.
  std::uint64_t changes() const;

 private:
  // Of what the device has measured.
  struct Measured {
    std::uint64_t count = 0;
    std::uint64_t last_ns = 0;
  };

  mutable std::mutex mutex_;
  tern_cuda_stats stats_ = TERN_CUDA_STATS_INIT;
  Measured encodes_;
  Measured decodes_;
  std::string pinning_problem_;
  std::uint64_t changes_ = 0;
};

}  // namespace tern::cuda
