#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// simt.h on a GPU.
#define TERN_DEVICE __device__ __forceinline__

namespace tern::codec::device::simt {

TERN_DEVICE unsigned thread() { return threadIdx.x; }
// Known to the compiler, so that loops over them have no ends to ask for.
inline constexpr unsigned kLaunchedThreads = 512;
TERN_DEVICE unsigned threads() { return kLaunchedThreads; }
TERN_DEVICE unsigned block() { return blockIdx.x; }

TERN_DEVICE void barrier() { __syncthreads(); }
TERN_DEVICE void warp_barrier() { __syncwarp(); }
TERN_DEVICE unsigned ballot(bool vote) { return __ballot_sync(0xffffffffu, vote); }
TERN_DEVICE std::uint32_t largest_of(unsigned mask, std::uint32_t value) {
  return __reduce_max_sync(mask, value);
}
TERN_DEVICE std::uint32_t shuffle(std::uint32_t value, unsigned lane) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(lane));
}
TERN_DEVICE std::uint32_t shuffle_up(std::uint32_t value, unsigned distance) {
  return __shfl_up_sync(0xffffffffu, value, distance);
}

template <typename T>
struct alignas(16) Wide {
  static constexpr unsigned kCount = 16 / sizeof(T);
  T of[kCount];
};

template <typename T>
struct Value {
  using Type = T;
};
template <typename T>
struct Value<const T> {
  using Type = T;
};

template <typename T>
class Global {
 public:
  using Value = typename simt::Value<T>::Type;

  TERN_DEVICE explicit Global(T* array) : array_(array) {}
  TERN_DEVICE Value load(std::size_t i) const { return at(i)[0]; }
  TERN_DEVICE Wide<Value> load_wide(std::size_t i) const {
    return *reinterpret_cast<const Wide<Value>*>(at(i));
  }
  TERN_DEVICE void store(std::size_t i, const Value& value) const { at(i)[0] = value; }
  TERN_DEVICE void store_wide(std::size_t i, const Wide<Value>& value) const {
    *reinterpret_cast<Wide<Value>*>(at(i)) = value;
  }

 private:
  // A pointer that was read from memory could point anywhere; the compiler is told.
  TERN_DEVICE T* at(std::size_t i) const {
    T* const place = array_ + i;
    if constexpr (std::is_arithmetic_v<T>) __builtin_assume(__isGlobal(place));
    return place;
  }

  T* array_;
};

template <typename T>
class Shared {
 public:
  TERN_DEVICE explicit Shared(T* array) : array_(array) {}
  TERN_DEVICE T load(std::size_t i) const { return at(i)[0]; }
  TERN_DEVICE Wide<T> load_wide(std::size_t i) const {
    return *reinterpret_cast<const Wide<T>*>(at(i));
  }
  TERN_DEVICE void store(std::size_t i, T value) const { at(i)[0] = value; }
  // As one number: the compiler would store the parts of a struct where it has just computed them.
  TERN_DEVICE void store_wide(std::size_t i, const Wide<T>& value) const {
    *reinterpret_cast<uint4*>(at(i)) = std::bit_cast<uint4>(value);
  }
  TERN_DEVICE std::uint32_t load_word(std::size_t i) const {
    return *reinterpret_cast<const std::uint32_t*>(at(i));
  }
  TERN_DEVICE void store_word(std::size_t i, std::uint32_t word) const {
    *reinterpret_cast<std::uint32_t*>(at(i)) = word;
  }
  TERN_DEVICE T add(std::size_t i, T value) const { return atomicAdd(at(i), value); }

 private:
  TERN_DEVICE T* at(std::size_t i) const {
    T* const place = array_ + i;
    return place;
  }

  T* array_;
};

extern __shared__ __align__(16) unsigned char shared_memory[];

class Arena {
 public:
  template <typename T>
  TERN_DEVICE Shared<T> take(std::size_t count) {
    T* const array = reinterpret_cast<T*>(shared_memory + used_);
    used_ += (count * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(array);
  }

 private:
  std::size_t used_ = 0;
};

}  // namespace tern::codec::device::simt
