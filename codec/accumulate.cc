#include "codec/accumulate.h"

#include <algorithm>
#include <cmath>
#include <complex>
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

// A byte of an application: 0 is false.
struct Boolean {
  std::uint8_t byte;
  bool is() const noexcept { return byte != 0; }
};

template <typename T>
constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
template <typename T>
constexpr bool kIsBoolean = std::is_same_v<T, Boolean>;

// Integers wrap, so they are combined as unsigned.
template <typename T>
T add(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T> || kIsComplex<T>) {
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
  } else if constexpr (kIsComplex<T>) {
    // As the formula has it: the standard's product corrects infinities, and takes a call for each.
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
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

template <typename T, typename Operation>
void combine_each(T* accumulator, const std::byte* source, std::size_t count,
                  Operation operation) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    accumulator[i] = operation(accumulator[i], load<T>(source + sizeof(T) * i));
  }
}

template <typename T>
void combine_bits(Reduction reduction, T* accumulator, const std::byte* source,
                  std::size_t count) noexcept {
  const auto apply = [&](auto operation) {
    combine_each(accumulator, source, count, [operation](T a, T b) {
      if constexpr (kIsBoolean<T>) {
        return Boolean{static_cast<std::uint8_t>(operation(a.is(), b.is()) ? 1 : 0)};
      } else {
        return static_cast<T>(operation(a, b));
      }
    });
  };
  if (reduction == Reduction::bit_and) return apply([](auto a, auto b) { return a & b; });
  if (reduction == Reduction::bit_or) return apply([](auto a, auto b) { return a | b; });
  TERN_CHECK(reduction == Reduction::bit_xor);
  apply([](auto a, auto b) { return a ^ b; });
}

// REQUIRES: the reduction has no objection to the type.
template <typename T>
void combine(Reduction reduction, T* accumulator, const std::byte* source,
             std::size_t count) noexcept {
  if constexpr (std::is_integral_v<T> || kIsBoolean<T>) {
    if (reduction >= Reduction::bit_and) {
      return combine_bits(reduction, accumulator, source, count);
    }
  }
  const auto apply = [&](auto operation) { combine_each(accumulator, source, count, operation); };
  if constexpr (std::is_arithmetic_v<T>) {
    if (reduction == Reduction::min) return apply([](T a, T b) { return lesser(a, b); });
    if (reduction == Reduction::max) return apply([](T a, T b) { return greater(a, b); });
  }
  if constexpr (!kIsBoolean<T>) {
    if (reduction == Reduction::product) return apply([](T a, T b) { return multiply(a, b); });
    TERN_CHECK(reduction == Reduction::sum || reduction == Reduction::average);
    if constexpr (std::is_same_v<T, float>) {
      convert_kernels().add_f32(accumulator, source, count);
    } else {
      apply([](T a, T b) { return add(a, b); });
    }
  }
}

template <typename T>
void begin(const std::byte* source, std::size_t count, float prescale, T* accumulator) noexcept {
  if (count == 0) return;
  std::memcpy(accumulator, source, sizeof(T) * count);
  if constexpr (kIsBoolean<T>) {
    for (std::size_t i = 0; i < count; ++i) accumulator[i].byte = accumulator[i].is() ? 1 : 0;
  }
  if (prescale == 1.0f) return;
  if constexpr (std::is_floating_point_v<T>) {
    for (std::size_t i = 0; i < count; ++i) accumulator[i] *= static_cast<T>(prescale);
  } else if constexpr (kIsComplex<T>) {
    using Part = typename T::value_type;
    for (std::size_t i = 0; i < count; ++i) accumulator[i] *= static_cast<Part>(prescale);
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

// In its own type, which the accumulator has.
template <typename T>
void finish_same(const T* accumulator, bool average, std::uint32_t rank_count,
                 const ElementsOut& out) noexcept {
  if constexpr (std::is_same_v<T, double> || kIsComplex<T>) {
    if (average) {
      using Part = std::conditional_t<std::is_same_v<T, std::complex<float>>, float, double>;
      const Part factor = Part{1} / static_cast<Part>(rank_count);
      for (std::size_t i = 0; i < out.count; ++i) {
        const T value = accumulator[i] * factor;
        std::memcpy(out.bytes + sizeof(value) * i, &value, sizeof(value));
      }
      return;
    }
  }
  if (out.count != 0) std::memmove(out.bytes, accumulator, sizeof(T) * out.count);
}

// Calls use() with the accumulator as what it holds. REQUIRES: values of the type can be reduced,
// and are not of 16 bits in floating point.
template <typename Void, typename Use>
void as_its_type(DType dtype, Void* accumulator, Use use) noexcept {
  const auto as = [&](auto example) {
    using T = decltype(example);
    use(static_cast<std::conditional_t<std::is_const_v<Void>, const T, T>*>(accumulator));
  };
  switch (dtype) {
    case DType::f32:
      return as(float{});
    case DType::f64:
      return as(double{});
    case DType::i64:
      return as(std::int64_t{});
    case DType::i32:
      return as(std::int32_t{});
    case DType::i16:
      return as(std::int16_t{});
    case DType::i8:
      return as(std::int8_t{});
    case DType::u64:
      return as(std::uint64_t{});
    case DType::u32:
      return as(std::uint32_t{});
    case DType::u16:
      return as(std::uint16_t{});
    case DType::u8:
      return as(std::uint8_t{});
    case DType::boolean:
      return as(Boolean{});
    case DType::c64:
      return as(std::complex<float>{});
    case DType::c128:
      return as(std::complex<double>{});
    case DType::f16:
    case DType::bf16:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      TERN_CHECK(false);
  }
}

}  // namespace

void accumulate_begin(const Elements& elements, float prescale, void* accumulator) noexcept {
  const auto& [dtype, source, count] = elements;
  if (dtype == DType::f16 || dtype == DType::bf16) {
    auto* const sums = static_cast<float*>(accumulator);
    to_f32(dtype, source, count, sums);
    if (prescale == 1.0f) return;
    for (std::size_t i = 0; i < count; ++i) sums[i] *= prescale;
    return;
  }
  as_its_type(dtype, accumulator,
              [&](auto* sums) { begin(elements.bytes, elements.count, prescale, sums); });
}

void accumulate(Reduction reduction, const Elements& source, float prescale,
                void* accumulator) noexcept {
  if (source.dtype == DType::f16 || source.dtype == DType::bf16) {
    return combine_half(reduction, static_cast<float*>(accumulator), source, prescale);
  }
  as_its_type(source.dtype, accumulator,
              [&](auto* sums) { combine_scaled(reduction, sums, source, prescale); });
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
  const DType dtype = out.dtype;
  const bool average = reduction == Reduction::average;
  TERN_CHECK(!average || (objection(reduction, dtype) == nullptr && rank_count != 0));
  if (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16) {
    return finish_f32(static_cast<const float*>(accumulator),
                      average ? 1.0f / static_cast<float>(rank_count) : 1.0f, out);
  }
  as_its_type(dtype, accumulator,
              [&](const auto* sums) { finish_same(sums, average, rank_count, out); });
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
