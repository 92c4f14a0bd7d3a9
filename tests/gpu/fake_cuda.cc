#include "fake_cuda.h"

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <set>

namespace tern::gpu {
namespace {

// Done, or waits still.
using Step = std::function<bool()>;

class Fake final : public FakeCuda {
 public:
  void reset() override { *this = Fake(); }
  void fail(const std::string& function, DriverCode code, int after) override {
    faults_[function] = {code, after};
  }
  void set_version(int version) override { version_ = version; }
  void set_context(bool is_current) override { is_current_ = is_current; }
  void set_attribute(int attribute, int value) override { attributes_[attribute] = value; }
  std::vector<std::string> calls() const override { return calls_; }
  int held() const override { return held_; }

  bool run(Stream stream) override {
    std::deque<Step>& steps = streams_[stream];
    while (!steps.empty() && steps.front()()) steps.pop_front();
    return steps.empty();
  }

  // Records the call, and says whether it fails.
  DriverCode called(const char* function, const std::string& detail = {}) {
    calls_.push_back(detail.empty() ? function : function + (" " + detail));
    const auto fault = faults_.find(function);
    if (fault == faults_.end() || fault->second.after-- > 0) return kSuccess;
    const DriverCode code = fault->second.code;
    faults_.erase(fault);
    return code;
  }

  void hold(int more) { held_ += more; }
  void enqueue(Stream stream, Step step) { streams_[stream].push_back(std::move(step)); }
  void set_event(Event event) { set_events_.insert(event); }
  bool is_set(Event event) const { return set_events_.count(event) != 0; }
  int version() const { return version_; }
  bool is_current() const { return is_current_; }
  int attribute(int which) const { return attributes_.at(which); }

 private:
  struct Fault {
    DriverCode code;
    int after;
  };

  std::vector<std::string> calls_;
  std::map<std::string, Fault> faults_;
  std::map<Stream, std::deque<Step>> streams_;
  std::set<Event> set_events_;
  std::map<int, int> attributes_ = {{kAttributeMajor, 9},
                                    {kAttributeMinor, 0},
                                    {kAttributeShared, 227 * 1024},
                                    {kAttributeWordWaits, 1}};
  int version_ = 13000;
  bool is_current_ = true;
  int held_ = 0;
};

Fake& fake() {
  static Fake instance;
  return instance;
}

// Handles are numbers that mean nothing.
template <typename Handle>
void give(Handle* handle) {
  static std::uintptr_t next = 1;
  *handle = reinterpret_cast<Handle>(next++);
}

// A call that makes something, and one that gives something back.
template <typename Handle>
DriverCode make(const char* function, Handle* handle) {
  const DriverCode code = fake().called(function);
  if (code != kSuccess) return code;
  fake().hold(1);
  give(handle);
  return kSuccess;
}
DriverCode give_back(const char* function) {
  fake().hold(-1);
  return fake().called(function);
}

}  // namespace
}  // namespace tern::gpu

using namespace tern::gpu;

#define TERN_FAKE extern "C" __attribute__((visibility("default")))

TERN_FAKE FakeCuda* fake_cuda() { return &fake(); }

TERN_FAKE DriverCode cuInit(unsigned) { return fake().called("cuInit"); }
TERN_FAKE DriverCode cuDriverGetVersion(int* version) {
  *version = fake().version();
  return fake().called("cuDriverGetVersion");
}
TERN_FAKE DriverCode cuGetErrorName(DriverCode code, const char** name) {
  *name = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE";
  return kSuccess;
}
TERN_FAKE DriverCode cuCtxGetCurrent(Context* context) {
  *context = fake().is_current() ? reinterpret_cast<Context>(std::uintptr_t{1}) : nullptr;
  return fake().called("cuCtxGetCurrent");
}
TERN_FAKE DriverCode cuCtxGetDevice(int* device) {
  *device = 0;
  return fake().called("cuCtxGetDevice");
}
TERN_FAKE DriverCode cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = fake().attribute(attribute);
  return fake().called("cuDeviceGetAttribute");
}
TERN_FAKE DriverCode cuModuleLoadData(Module* module, const void*) {
  return make("cuModuleLoadData", module);
}
TERN_FAKE DriverCode cuModuleUnload(Module) { return give_back("cuModuleUnload"); }
TERN_FAKE DriverCode cuModuleGetFunction(Function* function, Module, const char* name) {
  give(function);
  return fake().called("cuModuleGetFunction", name);
}
TERN_FAKE DriverCode cuFuncSetAttribute(Function, int attribute, int value) {
  return fake().called("cuFuncSetAttribute",
                       std::to_string(attribute) + " " + std::to_string(value));
}
TERN_FAKE DriverCode cuLaunchKernelEx(const LaunchConfig* config, Function, void**, void**) {
  return fake().called("cuLaunchKernelEx", std::to_string(config->grid[0]) + " " +
                                               std::to_string(config->block[0]) + " " +
                                               std::to_string(config->shared_bytes));
}
TERN_FAKE DriverCode cuMemAlloc_v2(DeviceAddress* address, std::size_t) {
  return make("cuMemAlloc_v2", reinterpret_cast<void**>(address));
}
TERN_FAKE DriverCode cuMemFree_v2(DeviceAddress) { return give_back("cuMemFree_v2"); }
TERN_FAKE DriverCode cuMemsetD8Async(DeviceAddress, unsigned char value, std::size_t bytes,
                                     Stream) {
  return fake().called("cuMemsetD8Async", std::to_string(value) + " " + std::to_string(bytes));
}
TERN_FAKE DriverCode cuMemHostRegister_v2(void*, std::size_t, unsigned) {
  void* ignored = nullptr;
  return make("cuMemHostRegister_v2", &ignored);
}
TERN_FAKE DriverCode cuMemHostUnregister(void*) { return give_back("cuMemHostUnregister"); }
TERN_FAKE DriverCode cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* memory, unsigned) {
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return fake().called("cuMemHostGetDevicePointer_v2");
}
TERN_FAKE DriverCode cuEventCreate(Event* event, unsigned) { return make("cuEventCreate", event); }
TERN_FAKE DriverCode cuEventDestroy_v2(Event) { return give_back("cuEventDestroy_v2"); }
TERN_FAKE DriverCode cuEventRecord(Event event, Stream stream) {
  const DriverCode code = fake().called("cuEventRecord");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [event] {
    fake().set_event(event);
    return true;
  });
  return kSuccess;
}
TERN_FAKE DriverCode cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  const DriverCode code = fake().called("cuStreamWaitEvent");
  if (code == kSuccess) fake().enqueue(stream, [event] { return fake().is_set(event); });
  return code;
}
TERN_FAKE DriverCode cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  const DriverCode code = fake().called("cuLaunchHostFunc");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [function, argument] {
    function(argument);
    return true;
  });
  return kSuccess;
}
TERN_FAKE DriverCode cuStreamWaitValue64_v2(Stream stream, DeviceAddress word, std::uint64_t value,
                                            unsigned) {
  const DriverCode code = fake().called("cuStreamWaitValue64_v2");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [word, value] {
    const auto* const at = reinterpret_cast<const std::atomic<std::uint64_t>*>(word);
    return static_cast<std::int64_t>(at->load() - value) >= 0;
  });
  return kSuccess;
}
