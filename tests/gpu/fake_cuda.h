#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gpu/driver_api.h"

// A CUDA driver for tests: a library of its own that records calls, fails where it is told to, and
// runs streams only when it is asked, or when a call waits for one. The device's memory is memory
// of the process. Thread: any.
namespace tern::gpu {

class FakeCuda {
 public:
  // The symbol of the library that returns it.
  static constexpr const char* kSymbol = "fake_cuda";

  // What a launch does when its stream gets there. The parameters are to be read at once.
  struct KernelCall {
    std::string kernel;
    LaunchConfig config;
    void** parameters;
  };
  using Runner = std::function<std::function<void()>(const KernelCall& call)>;

  virtual void reset() = 0;
  // The next call of the function fails, after so many that do not.
  virtual void fail(const std::string& function, DriverCode code, int after) = 0;
  // Every call that can fail does so from now on, and no stream goes on.
  virtual void lose_context(DriverCode code) = 0;
  virtual void set_version(int version) = 0;
  // Whether the calling thread has one. After reset() it has, and other threads have none.
  virtual void set_context(bool is_current) = 0;
  virtual void set_attribute(int attribute, int value) = 0;
  // Without one, launches do nothing.
  virtual void set_runner(Runner runner) = 0;
  // Host functions of streams wait until they are let through again.
  virtual void hold_callbacks(bool held) = 0;

  // Functions in the order of their calls, with what matters of their arguments.
  virtual std::vector<std::string> calls() const = 0;
  // What is pinned, allocated, loaded or made, and was not given back.
  virtual int held() const = 0;
  // What kernels reach beside that.
  virtual void add_memory(std::span<std::byte> range) = 0;
  // The device's memory: what is allocated or pinned, and what was added.
  virtual std::vector<std::span<std::byte>> memory() const = 0;

  // Goes on with a stream as far as it gets. True: all that was enqueued is done.
  virtual bool run(Stream stream) = 0;
  // With all streams, once each. True: all that was enqueued is done.
  virtual bool run_all() = 0;

 protected:
  ~FakeCuda() = default;
};

}  // namespace tern::gpu
