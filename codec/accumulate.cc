#include "codec/accumulate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "codec/kernels.h"

namespace tern::codec {
namespace {

// Elements of a strip that is converted to f32 on the stack before it is combined.
constexpr std::size_t kStripElements = 1024;

template <typename T>
T load(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Integers wrap, so they are combined as unsigned.
template <typename T>
T add(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  }
}

template <typename T>
T multiply(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    // Through 64 bits, because two short unsigned types would be promoted to a signed int.
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
}

template <typename T>
T lesser(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return b < a || std::isnan(b) ? b : a;
  } else {
    return std::min(a, b);
  }
}

template <typename T>
T greater(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return b > a || std::isnan(b) ? b : a;
  } else {
    return std::max(a, b);
  }
}

template <typename T>
void combine(Reduction reduction, T* accumulator, const std::byte* source,
             std::size_t count) noexcept {
  const auto apply = [&](auto operation) {
    for (std::size_t i = 0; i < count; ++i) {
      accumulator[i] = operation(accumulator[i], load<T>(source + sizeof(T) * i));
    }
  };
  switch (reduction) {
    case Reduction::sum:
    case Reduction::average:
      if constexpr (std::is_same_v<T, float>) {
        convert_kernels().add_f32(accumulator, source, count);
      } else {
        apply([](T a, T b) { return add(a, b); });
      }
      return;
    case Reduction::min:
      apply([](T a, T b) { return lesser(a, b); });
      return;
    case Reduction::max:
      apply([](T a, T b) { return greater(a, b); });
      return;
    case Reduction::product:
      apply([](T a, T b) { return multiply(a, b); });
      return;
  }
}

template <typename T>
void begin(const std::byte* source, std::size_t count, float prescale, T* accumulator) noexcept {
  if (count == 0) return;
  std::memcpy(accumulator, source, sizeof(T) * count);
  if (prescale == 1.0f) return;
  if constexpr (std::is_floating_point_v<T>) {
    for (std::size_t i = 0; i < count; ++i) accumulator[i] *= static_cast<T>(prescale);
  } else {
    TERN_CHECK(prescale == 1.0f);
  }
}

// With a prescale, and for f32 sources of 16 bits: strips through the stack.
template <typename T>
void combine_scaled(Reduction reduction, T* accumulator, const Elements& elements,
                    float prescale) noexcept {
  const std::byte* const source = elements.bytes;
  const std::size_t count = elements.count;
  if (prescale == 1.0f) {
    combine(reduction, accumulator, source, count);
    return;
  }
  alignas(64) T strip[kStripElements];
  for (std::size_t done = 0; done < count; done += kStripElements) {
    const std::size_t length = std::min(kStripElements, count - done);
    begin(source + sizeof(T) * done, length, prescale, strip);
    combine(reduction, accumulator + done, reinterpret_cast<const std::byte*>(strip), length);
  }
}

void combine_half(Reduction reduction, float* accumulator, const Elements& elements,
                  float prescale) noexcept {
  const auto& [dtype, source, count] = elements;
  const bool adds = reduction == Reduction::sum || reduction == Reduction::average;
  if (adds && prescale == 1.0f) {
    const ConvertKernels& kernels = convert_kernels();
    (dtype == DType::f16 ? kernels.add_f16 : kernels.add_bf16)(accumulator, source, count);
    return;
  }
  alignas(64) float strip[kStripElements];
  for (std::size_t done = 0; done < count; done += kStripElements) {
    const std::size_t length = std::min(kStripElements, count - done);
    accumulate_begin({dtype, source + 2 * done, length}, prescale, strip);
    combine(reduction, accumulator + done, reinterpret_cast<const std::byte*>(strip), length);
  }
}

void finish_f32(const float* accumulator, float factor, const ElementsOut& out) noexcept {
  const auto& [dtype, destination, count] = out;
  if (factor == 1.0f) {
    from_f32(dtype, accumulator, count, destination);
    return;
  }
  alignas(64) float strip[kStripElements];
  for (std::size_t done = 0; done < count; done += kStripElements) {
    const std::size_t length = std::min(kStripElements, count - done);
    for (std::size_t i = 0; i < length; ++i) strip[i] = accumulator[done + i] * factor;
    from_f32(dtype, strip, length, destination + dtype_bytes(dtype) * done);
  }
}

void finish_f64(const double* accumulator, std::size_t count, double factor,
                std::byte* destination) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = factor == 1.0 ? accumulator[i] : accumulator[i] * factor;
    std::memcpy(destination + sizeof(value) * i, &value, sizeof(value));
  }
}

}  // namespace

void accumulate_begin(const Elements& elements, float prescale, void* accumulator) noexcept {
  const auto& [dtype, source, count] = elements;
  switch (dtype) {
    case DType::f16:
    case DType::bf16: {
      auto* const sums = static_cast<float*>(accumulator);
      to_f32(dtype, source, count, sums);
      if (prescale == 1.0f) return;
      for (std::size_t i = 0; i < count; ++i) sums[i] *= prescale;
      return;
    }
    case DType::f32:
      begin(source, count, prescale, static_cast<float*>(accumulator));
      return;
    case DType::f64:
      begin(source, count, prescale, static_cast<double*>(accumulator));
      return;
    case DType::i64:
      begin(source, count, prescale, static_cast<std::int64_t*>(accumulator));
      return;
    case DType::i32:
      begin(source, count, prescale, static_cast<std::int32_t*>(accumulator));
      return;
    case DType::u8:
      begin(source, count, prescale, static_cast<std::uint8_t*>(accumulator));
      return;
  }
}

void accumulate(Reduction reduction, const Elements& source, float prescale,
                void* accumulator) noexcept {
  const auto typed = [&](auto* sums) { combine_scaled(reduction, sums, source, prescale); };
  switch (source.dtype) {
    case DType::f16:
    case DType::bf16:
      combine_half(reduction, static_cast<float*>(accumulator), source, prescale);
      return;
    case DType::f32:
      typed(static_cast<float*>(accumulator));
      return;
    case DType::f64:
      typed(static_cast<double*>(accumulator));
      return;
    case DType::i64:
      typed(static_cast<std::int64_t*>(accumulator));
      return;
    case DType::i32:
      typed(static_cast<std::int32_t*>(accumulator));
      return;
    case DType::u8:
      typed(static_cast<std::uint8_t*>(accumulator));
      return;
  }
}

void accumulate_first(Reduction reduction, const Elements& own, const std::byte* source,
                      void* accumulator) noexcept {
  const bool adds = reduction == Reduction::sum || reduction == Reduction::average;
  if (own.dtype == DType::f32 && adds) {
    convert_kernels().sum_f32(own.bytes, source, own.count, static_cast<float*>(accumulator));
    return;
  }
  accumulate_begin(own, 1.0f, accumulator);
  accumulate(reduction, {own.dtype, source, own.count}, 1.0f, accumulator);
}

void accumulate_finish(Reduction reduction, const void* accumulator, std::uint32_t rank_count,
                       const ElementsOut& out) noexcept {
  const auto& [dtype, destination, count] = out;
  const bool average = reduction == Reduction::average;
  TERN_CHECK(!average || (dtype_is_float(dtype) && rank_count != 0));
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      finish_f32(static_cast<const float*>(accumulator),
                 average ? 1.0f / static_cast<float>(rank_count) : 1.0f, out);
      return;
    case DType::f64:
      finish_f64(static_cast<const double*>(accumulator), count,
                 average ? 1.0 / static_cast<double>(rank_count) : 1.0, destination);
      return;
    case DType::i64:
    case DType::i32:
    case DType::u8:
      if (count != 0) std::memmove(destination, accumulator, dtype_bytes(dtype) * count);
      return;
  }
}

void to_f32(DType dtype, const std::byte* source, std::size_t count, float* out) noexcept {
  const ConvertKernels& kernels = convert_kernels();
  switch (dtype) {
    case DType::f16:
      kernels.f16_to_f32(source, count, out);
      return;
    case DType::bf16:
      kernels.bf16_to_f32(source, count, out);
      return;
    case DType::f32:
      if (count != 0) std::memcpy(out, source, sizeof(float) * count);
      return;
    default:
      TERN_CHECK(dtype == DType::f32);
  }
}

void from_f32(DType dtype, const float* source, std::size_t count, std::byte* out) noexcept {
  const ConvertKernels& kernels = convert_kernels();
  switch (dtype) {
    case DType::f16:
      kernels.f32_to_f16(source, count, out);
      return;
    case DType::bf16:
      kernels.f32_to_bf16(source, count, out);
      return;
    case DType::f32:
      if (count != 0 && static_cast<const void*>(out) != source) {
        std::memmove(out, source, sizeof(float) * count);
      }
      return;
    default:
      TERN_CHECK(dtype == DType::f32);
  }
}

}  // namespace tern::codec
