#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/device/emulation/machine.h"

// simt.h on this processor.
#define TERN_DEVICE inline

namespace tern::codec::device::simt {

using emulation::Exchange;
using emulation::Machine;
using emulation::Site;
using emulation::Touch;

inline unsigned thread() { return Machine::current().thread(); }
inline unsigned threads() { return Machine::current().threads(); }
inline unsigned block() { return Machine::current().block(); }

inline void barrier(Site site = Site::here()) { Machine::current().barrier(site); }

inline void warp_barrier(Site site = Site::here()) {
  Machine::current().exchange({Exchange::Kind::barrier, 0xffffffffu}, site);
}

inline unsigned ballot(bool vote, Site site = Site::here()) {
  return static_cast<unsigned>(
      Machine::current().exchange({Exchange::Kind::ballot, 0xffffffffu, vote ? 1u : 0u}, site));
}

// Of the lanes in `mask`, in which the caller is.
inline std::uint32_t largest_of(unsigned mask, std::uint32_t value, Site site = Site::here()) {
  return static_cast<std::uint32_t>(
      Machine::current().exchange({Exchange::Kind::largest, mask, value}, site));
}

inline std::uint32_t shuffle(std::uint32_t value, unsigned lane, Site site = Site::here()) {
  return static_cast<std::uint32_t>(
      Machine::current().exchange({Exchange::Kind::take, 0xffffffffu, value, lane}, site));
}

// The value of the lane `distance` below; the first lanes keep their own.
inline std::uint32_t shuffle_up(std::uint32_t value, unsigned distance, Site site = Site::here()) {
  const unsigned lane = thread() % 32u;
  return shuffle(value, lane < distance ? lane : lane - distance, site);
}

template <typename T>
struct alignas(16) Wide {
  static constexpr unsigned kCount = 16 / sizeof(T);
  T of[kCount];
};

template <typename T>
class Global {
 public:
  using Value = std::remove_const_t<T>;

  explicit Global(T* array) : array_(array) {}

  Value load(std::size_t i, Site site = Site::here()) const {
    Machine::current().touch_global(array_ + i, sizeof(T), Touch::read, site);
    Value value;
    std::memcpy(static_cast<void*>(&value), array_ + i, sizeof(T));
    return value;
  }
  // Requires: array + i is aligned to 16 bytes.
  Wide<Value> load_wide(std::size_t i, Site site = Site::here()) const {
    Machine::current().touch_global(array_ + i, sizeof(Wide<Value>), Touch::read, site);
    Wide<Value> value;
    std::memcpy(&value, array_ + i, sizeof(value));
    return value;
  }
  void store(std::size_t i, const Value& value, Site site = Site::here()) const {
    Machine::current().touch_global(array_ + i, sizeof(T), Touch::write, site);
    std::memcpy(static_cast<void*>(array_ + i), &value, sizeof(T));
  }
  void store_wide(std::size_t i, const Wide<Value>& value, Site site = Site::here()) const {
    Machine::current().touch_global(array_ + i, sizeof(value), Touch::write, site);
    std::memcpy(static_cast<void*>(array_ + i), &value, sizeof(value));
  }

 private:
  T* array_;
};

template <typename T>
class Shared {
 public:
  explicit Shared(emulation::SharedArray& array) : array_(&array) {}

  T load(std::size_t i, Site site = Site::here()) const {
    Machine::current().touch_shared(*array_, Touch::read, {i, 1}, site);
    T value;
    std::memcpy(&value, at(i), sizeof(T));
    return value;
  }
  Wide<T> load_wide(std::size_t i, Site site = Site::here()) const {
    Machine::current().touch_shared(*array_, Touch::read, {i, Wide<T>::kCount}, site);
    Wide<T> value;
    std::memcpy(&value, at(i), sizeof(value));
    return value;
  }
  void store(std::size_t i, T value, Site site = Site::here()) const {
    Machine::current().touch_shared(*array_, Touch::write, {i, 1}, site);
    std::memcpy(at(i), &value, sizeof(T));
  }
  void store_wide(std::size_t i, const Wide<T>& value, Site site = Site::here()) const {
    Machine::current().touch_shared(*array_, Touch::write, {i, Wide<T>::kCount}, site);
    std::memcpy(at(i), &value, sizeof(value));
  }
  std::uint32_t load_word(std::size_t i, Site site = Site::here()) const {
    static_assert(sizeof(T) == 1);
    Machine::current().touch_shared(*array_, Touch::read, {i, 4}, site);
    std::uint32_t word;
    std::memcpy(&word, at(i), sizeof(word));
    return word;
  }
  void store_word(std::size_t i, std::uint32_t word, Site site = Site::here()) const {
    static_assert(sizeof(T) == 1);
    Machine::current().touch_shared(*array_, Touch::write, {i, 4}, site);
    std::memcpy(at(i), &word, sizeof(word));
  }
  // In one piece, whoever else adds meanwhile. Returns what was there before.
  T add(std::size_t i, T value, Site site = Site::here()) const {
    Machine::current().touch_shared(*array_, Touch::atomic, {i, 1}, site);
    T before;
    std::memcpy(&before, at(i), sizeof(T));
    const T after = before + value;
    std::memcpy(at(i), &after, sizeof(T));
    return before;
  }

 private:
  std::byte* at(std::size_t i) const { return array_->data() + i * sizeof(T); }

  emulation::SharedArray* array_;
};

class Arena {
 public:
  template <typename T>
  Shared<T> take(std::size_t count, Site site = Site::here()) {
    return Shared<T>(Machine::current().shared_array(next_++, {count, sizeof(T)}, site));
  }

 private:
  std::size_t next_ = 0;
};

}  // namespace tern::codec::device::simt
