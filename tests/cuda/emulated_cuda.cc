// A CUDA driver for programs that load one, as the Python package's tests do: the fake driver with
// kernels on the emulation, whose streams run by themselves. A device address is the host's.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>

#include "tests/cuda/emulated_kernels.h"

extern "C" tern::gpu::FakeCuda* fake_cuda();

namespace tern::cuda {
namespace {

// Runs all streams again and again: one may wait for a word that anybody writes.
class RunningDriver {
 public:
  RunningDriver() : driver_(*fake_cuda()) {
    driver_.set_runner(emulated_kernels(driver_));
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      while (!stopped_.wait_for(lock, kPause, [this] { return stops_; })) {
        lock.unlock();
        driver_.run_all();
        lock.lock();
      }
    });
  }
  ~RunningDriver() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stopped_.notify_one();
    thread_.join();
  }
  RunningDriver(const RunningDriver&) = delete;
  RunningDriver& operator=(const RunningDriver&) = delete;

  void enter() { driver_.set_context(true); }
  void add_memory(std::span<std::byte> range) { driver_.add_memory(range); }

 private:
  static constexpr std::chrono::microseconds kPause{100};

  gpu::FakeCuda& driver_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stops_ = false;  // guarded by the mutex
  std::thread thread_;
};

RunningDriver& driver() {
  static RunningDriver running;
  return running;
}

}  // namespace
}  // namespace tern::cuda

#define TERN_EMULATED extern "C" __attribute__((visibility("default")))

// The calling thread has a context from now on, and streams run.
TERN_EMULATED void emulated_cuda_enter() { tern::cuda::driver().enter(); }

// Kernels may use this memory of the program's.
TERN_EMULATED void emulated_cuda_add_memory(std::byte* begin, std::size_t bytes) {
  tern::cuda::driver().add_memory({begin, bytes});
}
