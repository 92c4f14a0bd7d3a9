#include "fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>

namespace tern::gpu {
namespace {

// Done, or waits still.
using Step = std::function<bool()>;

class Fake final : public FakeCuda {
 public:
  void reset() override {
    const std::lock_guard lock(mutex_);
    state_ = State();
    contexts = 1;
  }
  void fail(const std::string& function, DriverCode code, int after) override {
    const std::lock_guard lock(mutex_);
    state_.faults[function] = {code, after};
  }
  void lose_context(DriverCode code) override {
    const std::lock_guard lock(mutex_);
    state_.lost = code;
  }
  void set_version(int version) override { state_.version = version; }
  void set_context(bool is_current) override { contexts = is_current ? 1 : 0; }
  void set_attribute(int attribute, int value) override { state_.attributes[attribute] = value; }
  void set_runner(Runner runner) override { state_.runner = std::move(runner); }
  void hold_callbacks(bool held) override {
    const std::lock_guard lock(mutex_);
    state_.holds_callbacks = held;
  }
  std::vector<std::string> calls() const override {
    const std::lock_guard lock(mutex_);
    return state_.calls;
  }
  int held() const override {
    const std::lock_guard lock(mutex_);
    return state_.held;
  }
  std::vector<std::span<std::byte>> memory() const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::span<std::byte>> all;
    for (const auto& [begin, bytes] : state_.memory) all.push_back({begin, bytes});
    return all;
  }

  // A stream runs on one thread at a time, and without the mutex: what it calls may call the fake.
  bool run(Stream stream) override {
    std::unique_lock lock(mutex_);
    Queue& queue = state_.streams[stream];
    ran_.wait(lock, [&] { return !queue.is_running; });
    queue.is_running = true;
    while (!queue.steps.empty() && state_.lost == kSuccess) {
      const Step step = queue.steps.front();
      lock.unlock();
      const bool is_done = step();
      lock.lock();
      if (!is_done) break;
      queue.steps.pop_front();
    }
    queue.is_running = false;
    ran_.notify_all();
    return queue.steps.empty();
  }

  bool run_all() override {
    std::vector<Stream> streams;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [stream, queue] : state_.streams) streams.push_back(stream);
    }
    bool all_done = true;
    for (Stream stream : streams) all_done = run(stream) && all_done;
    return all_done;
  }

  // Until all of it is done, as a call that waits. False: the context is lost.
  bool finish(Stream stream) {
    while (!run(stream)) {
      std::unique_lock lock(mutex_);
      if (state_.lost != kSuccess) return false;
      ran_.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
  }

  // Records the call, and says whether it fails.
  DriverCode called(const char* function, const std::string& detail = {}) {
    const std::lock_guard lock(mutex_);
    state_.calls.push_back(detail.empty() ? function : function + (" " + detail));
    if (state_.lost != kSuccess) return state_.lost;
    if (contexts == 0 && needs_context(function)) return kInvalidContext;
    const auto fault = state_.faults.find(function);
    if (fault == state_.faults.end() || fault->second.after-- > 0) return kSuccess;
    const DriverCode code = fault->second.code;
    state_.faults.erase(fault);
    return code;
  }

  void hold(int more) {
    const std::lock_guard lock(mutex_);
    state_.held += more;
  }
  void add_memory(std::span<std::byte> range) override {
    const std::lock_guard lock(mutex_);
    state_.memory[range.data()] = range.size();
  }
  void remove_memory(void* begin) {
    const std::lock_guard lock(mutex_);
    state_.memory.erase(static_cast<std::byte*>(begin));
  }
  void enqueue(Stream stream, Step step) {
    const std::lock_guard lock(mutex_);
    state_.streams[stream].steps.push_back(std::move(step));
  }
  bool is_idle(Stream stream) {
    const std::lock_guard lock(mutex_);
    return state_.streams[stream].steps.empty();
  }
  bool holds_callbacks() const {
    const std::lock_guard lock(mutex_);
    return state_.holds_callbacks;
  }

  // A wait is for the record that was called last before it.
  std::uint64_t begin_record(Event event) {
    const std::lock_guard lock(mutex_);
    return ++state_.records[event].called;
  }
  void end_record(Event event, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    state_.records[event].done.insert(number);
  }
  std::uint64_t last_record(Event event) {
    const std::lock_guard lock(mutex_);
    return state_.records[event].called;
  }
  bool is_recorded(Event event, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return number == 0 || state_.records[event].done.contains(number);
  }

  void name_function(Function function, const char* name) {
    const std::lock_guard lock(mutex_);
    state_.functions[function] = name;
  }
  Step launch(const LaunchConfig& config, Function function, void** parameters) {
    Runner runner;
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      runner = state_.runner;
      name = state_.functions[function];
    }
    if (!runner) return [] { return true; };
    return [work = runner({name, config, parameters})] {
      work();
      return true;
    };
  }

  int version() const { return state_.version; }
  bool is_current() const { return contexts != 0; }
  DriverCode push_context() {
    const DriverCode code = called("cuCtxPushCurrent_v2");
    if (code == kSuccess) ++contexts;
    return code;
  }
  DriverCode pop_context() {
    const DriverCode code = called("cuCtxPopCurrent_v2");
    if (contexts != 0) --contexts;
    return code;
  }
  DriverCode enter_context() {
    const DriverCode code = called("cuCtxSetCurrent");
    if (code == kSuccess) contexts = std::max(contexts, 1);
    return code;
  }
  int attribute(int which) const { return state_.attributes.at(which); }

 private:
  struct Fault {
    DriverCode code;
    int after;
  };
  struct Queue {
    std::deque<Step> steps;
    bool is_running = false;
  };
  struct Record {
    std::uint64_t called = 0;
    std::set<std::uint64_t> done;
  };
  struct State {
    std::vector<std::string> calls;
    std::map<std::string, Fault> faults;
    std::map<Stream, Queue> streams;
    std::map<Event, Record> records;
    std::map<Function, std::string> functions;
    std::map<std::byte*, std::size_t> memory;
    std::map<int, int> attributes = {{kAttributeMajor, 9},
                                     {kAttributeMinor, 0},
                                     {kAttributeShared, 227 * 1024},
                                     {kAttributeWordWaits, 1}};
    Runner runner;
    DriverCode lost = kSuccess;
    int version = 13000;
    bool holds_callbacks = false;
    int held = 0;
  };

  // What a driver answers without one.
  static bool needs_context(std::string_view function) {
    const std::string_view without[] = {"cuInit", "cuDriver", "cuCtx", "cuThread", "cuDeviceGet"};
    return std::ranges::none_of(
        without, [function](std::string_view start) { return function.starts_with(start); });
  }

  // Those that are current for the thread, one above the other.
  static thread_local int contexts;

  mutable std::mutex mutex_;
  std::condition_variable ran_;
  State state_;
};

thread_local int Fake::contexts = 0;

Fake& fake() {
  static Fake instance;
  return instance;
}

// Handles are numbers that mean nothing.
template <typename Handle>
void give(Handle* handle) {
  static std::atomic<std::uintptr_t> next{1};
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

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

DriverCode copy(const char* function, const Copy& what, Stream stream) {
  const DriverCode code = fake().called(function, std::to_string(what.bytes));
  if (code != kSuccess) return code;
  fake().enqueue(stream, [what] {
    std::memcpy(what.to, what.from, what.bytes);
    return true;
  });
  return kSuccess;
}

}  // namespace
}  // namespace tern::gpu

using namespace tern::gpu;

#define TERN_FAKE extern "C" __attribute__((visibility("default")))

TERN_FAKE FakeCuda* fake_cuda() { return &fake(); }

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
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
TERN_FAKE DriverCode cuCtxSetCurrent(Context) { return fake().enter_context(); }
TERN_FAKE DriverCode cuCtxPushCurrent_v2(Context) { return fake().push_context(); }
TERN_FAKE DriverCode cuCtxPopCurrent_v2(Context*) { return fake().pop_context(); }
TERN_FAKE DriverCode cuThreadExchangeStreamCaptureMode(int*) {
  return fake().called("cuThreadExchangeStreamCaptureMode");
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
  fake().name_function(*function, name);
  return fake().called("cuModuleGetFunction", name);
}
TERN_FAKE DriverCode cuFuncSetAttribute(Function, int attribute, int value) {
  return fake().called("cuFuncSetAttribute",
                       std::to_string(attribute) + " " + std::to_string(value));
}
TERN_FAKE DriverCode cuLaunchKernelEx(const LaunchConfig* config, Function function,
                                      void** parameters, void**) {
  const DriverCode code = fake().called(
      "cuLaunchKernelEx", std::to_string(config->grid[0]) + " " + std::to_string(config->block[0]) +
                              " " + std::to_string(config->shared_bytes));
  if (code == kSuccess) {
    fake().enqueue(config->stream, fake().launch(*config, function, parameters));
  }
  return code;
}
TERN_FAKE DriverCode cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const DriverCode code = fake().called("cuMemAlloc_v2", std::to_string(bytes));
  if (code != kSuccess) return code;
  const std::size_t whole = (bytes + kAlignment) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, whole);
  std::memset(memory, 0xcd, whole);
  fake().hold(1);
  fake().add_memory({static_cast<std::byte*>(memory), bytes});
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return kSuccess;
}
TERN_FAKE DriverCode cuMemFree_v2(DeviceAddress address) {
  fake().remove_memory(pointer(address));
  std::free(pointer(address));
  return give_back("cuMemFree_v2");
}
TERN_FAKE DriverCode cuMemsetD8Async(DeviceAddress address, unsigned char value, std::size_t bytes,
                                     Stream stream) {
  const DriverCode code =
      fake().called("cuMemsetD8Async", std::to_string(value) + " " + std::to_string(bytes));
  if (code != kSuccess) return code;
  fake().enqueue(stream, [address, value, bytes] {
    std::memset(pointer(address), value, bytes);
    return true;
  });
  return kSuccess;
}
TERN_FAKE DriverCode cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, std::size_t bytes,
                                          Stream stream) {
  return copy("cuMemcpyDtoHAsync_v2", {to, pointer(from), bytes}, stream);
}
TERN_FAKE DriverCode cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, std::size_t bytes,
                                          Stream stream) {
  return copy("cuMemcpyHtoDAsync_v2", {pointer(to), from, bytes}, stream);
}
TERN_FAKE DriverCode cuMemcpyDtoDAsync_v2(DeviceAddress to, DeviceAddress from, std::size_t bytes,
                                          Stream stream) {
  return copy("cuMemcpyDtoDAsync_v2", {pointer(to), pointer(from), bytes}, stream);
}
TERN_FAKE DriverCode cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  void* ignored = nullptr;
  const DriverCode code = make("cuMemHostRegister_v2", &ignored);
  if (code == kSuccess) fake().add_memory({static_cast<std::byte*>(memory), bytes});
  return code;
}
TERN_FAKE DriverCode cuMemHostUnregister(void* memory) {
  fake().remove_memory(memory);
  return give_back("cuMemHostUnregister");
}
TERN_FAKE DriverCode cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return fake().called("cuCtxGetStreamPriorityRange");
}
TERN_FAKE DriverCode cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  if (flags != kStreamApart || priority != -5) return 1;
  return make("cuStreamCreateWithPriority", stream);
}
TERN_FAKE DriverCode cuStreamDestroy_v2(Stream) { return give_back("cuStreamDestroy_v2"); }
TERN_FAKE DriverCode cuStreamSynchronize(Stream stream) {
  const DriverCode code = fake().called("cuStreamSynchronize");
  if (code != kSuccess) return code;
  return fake().finish(stream) ? kSuccess : fake().called("cuStreamSynchronize");
}
TERN_FAKE DriverCode cuStreamQuery(Stream stream) {
  const DriverCode code = fake().called("cuStreamQuery");
  if (code != kSuccess) return code;
  return fake().is_idle(stream) ? kSuccess : kNotReady;
}
TERN_FAKE DriverCode cuEventElapsedTime(float* milliseconds, Event, Event) {
  *milliseconds = 0.5f;
  return fake().called("cuEventElapsedTime");
}
TERN_FAKE DriverCode cuMemHostGetDevicePointer_v2(DeviceAddress* address, void* memory, unsigned) {
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return fake().called("cuMemHostGetDevicePointer_v2");
}
TERN_FAKE DriverCode cuEventCreate(Event* event, unsigned) { return make("cuEventCreate", event); }
TERN_FAKE DriverCode cuEventDestroy_v2(Event) { return give_back("cuEventDestroy_v2"); }
TERN_FAKE DriverCode cuEventRecord(Event event, Stream stream) {
  const DriverCode code = fake().called("cuEventRecord");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [event, number = fake().begin_record(event)] {
    fake().end_record(event, number);
    return true;
  });
  return kSuccess;
}
TERN_FAKE DriverCode cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  const DriverCode code = fake().called("cuStreamWaitEvent");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [event, number = fake().last_record(event)] {
    return fake().is_recorded(event, number);
  });
  return kSuccess;
}
TERN_FAKE DriverCode cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  const DriverCode code = fake().called("cuLaunchHostFunc");
  if (code != kSuccess) return code;
  fake().enqueue(stream, [function, argument] {
    if (fake().holds_callbacks()) return false;
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
// NOLINTEND(readability-identifier-naming)
