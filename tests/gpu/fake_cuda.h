#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/driver_api.h"

// A CUDA driver for tests: a library of its own that records calls, fails where it is told to, and
// runs streams only when it is asked.
namespace tern::gpu {

class FakeCuda {
 public:
  // The symbol of the library that returns it.
  static constexpr const char* kSymbol = "fake_cuda";

  virtual void reset() = 0;
  // The next call of the function fails, after so many that do not.
  virtual void fail(const std::string& function, DriverCode code, int after) = 0;
  virtual void set_version(int version) = 0;
  virtual void set_context(bool is_current) = 0;
  virtual void set_attribute(int attribute, int value) = 0;

  // Functions in the order of their calls, with what matters of their arguments.
  virtual std::vector<std::string> calls() const = 0;
  // What is pinned, allocated, loaded or made, and was not given back.
  virtual int held() const = 0;

  // Goes on with a stream as far as it gets. True: all that was enqueued is done.
  virtual bool run(Stream stream) = 0;

 protected:
  ~FakeCuda() = default;
};

}  // namespace tern::gpu
