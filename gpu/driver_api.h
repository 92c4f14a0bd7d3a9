#pragma once

#include <cstddef>
#include <cstdint>

// The part of the CUDA driver's interface that Tern uses, in types of its own: the driver is opened
// at run time, and a build needs no CUDA. tests/gpu compares this with cuda.h where that is.
namespace tern::gpu {

using DriverCode = int;  // CUresult

inline constexpr DriverCode kSuccess = 0;
inline constexpr DriverCode kOutOfMemory = 2;
inline constexpr DriverCode kNoDevice = 100;
inline constexpr DriverCode kInvalidContext = 201;
inline constexpr DriverCode kNoBinaryForGpu = 209;
inline constexpr DriverCode kNotReady = 600;
inline constexpr DriverCode kAlreadyRegistered = 712;
// A thread of the program captures a stream into a graph, in which the call has no place.
inline constexpr DriverCode kFirstOfCapture = 900;
inline constexpr DriverCode kLastOfCapture = 908;

using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using Stream = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using DeviceAddress = unsigned long long;  // CUdeviceptr

inline constexpr int kAttributeMajor = 75;  // of the compute capability
inline constexpr int kAttributeMinor = 76;
inline constexpr int kAttributeShared = 97;      // most shared memory of a block, if asked for
inline constexpr int kAttributeWordWaits = 122;  // streams can wait for words of 64 bits
inline constexpr int kFunctionShared = 8;
inline constexpr unsigned kWaitAtLeast = 0;  // by the sign of the difference
inline constexpr unsigned kRegisterPortable = 1;
inline constexpr unsigned kRegisterMapped = 2;
inline constexpr unsigned kEventWithTime = 0;
inline constexpr unsigned kEventWithoutTime = 2;
inline constexpr unsigned kStreamApart = 1;  // it waits for no stream of the program by itself
inline constexpr int kCaptureRelaxed = 2;    // calls of this thread are no matter of any capture

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  void* attributes;
  unsigned attribute_count;
};

struct DriverApi {
  DriverCode (*init)(unsigned flags);
  DriverCode (*version)(int* version);
  DriverCode (*error_name)(DriverCode code, const char** name);
  DriverCode (*current_context)(Context* context);
  DriverCode (*set_context)(Context context);
  DriverCode (*push_context)(Context context);
  DriverCode (*pop_context)(Context* context);
  DriverCode (*exchange_capture_mode)(int* mode);
  DriverCode (*current_device)(int* device);
  DriverCode (*device_attribute)(int* value, int attribute, int device);
  DriverCode (*load_module)(Module* module, const void* image);
  DriverCode (*unload_module)(Module module);
  DriverCode (*find_function)(Function* function, Module module, const char* name);
  DriverCode (*set_function)(Function function, int attribute, int value);
  DriverCode (*launch)(const LaunchConfig* config, Function function, void** parameters,
                       void** extra);
  DriverCode (*allocate)(DeviceAddress* address, std::size_t bytes);
  DriverCode (*release)(DeviceAddress address);
  DriverCode (*fill)(DeviceAddress address, unsigned char value, std::size_t bytes, Stream stream);
  DriverCode (*copy_down)(void* to, DeviceAddress from, std::size_t bytes, Stream stream);
  DriverCode (*copy_up)(DeviceAddress to, const void* from, std::size_t bytes, Stream stream);
  DriverCode (*copy_across)(DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream);
  DriverCode (*pin)(void* memory, std::size_t bytes, unsigned flags);
  DriverCode (*unpin)(void* memory);
  DriverCode (*pinned_address)(DeviceAddress* address, void* memory, unsigned flags);
  DriverCode (*priorities)(int* least, int* greatest);  // the greatest is the smallest number
  DriverCode (*make_stream)(Stream* stream, unsigned flags, int priority);
  DriverCode (*destroy_stream)(Stream stream);
  DriverCode (*finish_stream)(Stream stream);
  DriverCode (*query_stream)(Stream stream);
  DriverCode (*make_event)(Event* event, unsigned flags);
  DriverCode (*destroy_event)(Event event);
  DriverCode (*record_event)(Event event, Stream stream);
  DriverCode (*wait_event)(Stream stream, Event event, unsigned flags);
  DriverCode (*elapsed)(float* milliseconds, Event begin, Event end);
  DriverCode (*call_host)(Stream stream, void (*function)(void* argument), void* argument);
  DriverCode (*wait_word)(Stream stream, DeviceAddress word, std::uint64_t value, unsigned flags);
};

}  // namespace tern::gpu
