#include "tests/e2e/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/half.h"

namespace tern::e2e {
namespace {

struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

// splitmix64.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) noexcept {
  std::uint64_t z = seed * 0xd1342543de82ef95 + rank * 0xaf251af3b0f025b5 + index + 1;
  z *= 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double as_double(float value) noexcept { return static_cast<double>(value); }
double as_double(double value) noexcept { return value; }
double as_double(F16 value) noexcept { return static_cast<double>(f16_to_f32(value.bits)); }
double as_double(Bf16 value) noexcept { return static_cast<double>(bf16_to_f32(value.bits)); }

void set(double value, float& out) noexcept { out = static_cast<float>(value); }
void set(double value, double& out) noexcept { out = value; }
void set(double value, F16& out) noexcept { out.bits = f32_to_f16(static_cast<float>(value)); }
void set(double value, Bf16& out) noexcept { out.bits = f32_to_bf16(static_cast<float>(value)); }

template <typename T>
constexpr double kEpsilon = 0;
template <>
constexpr double kEpsilon<float> = 0x1p-23;
template <>
constexpr double kEpsilon<double> = 0x1p-52;
template <>
constexpr double kEpsilon<F16> = 0x1p-10;
template <>
constexpr double kEpsilon<Bf16> = 0x1p-7;

std::int64_t whole_number(const Draw& draw, std::uint64_t random) noexcept {
  const auto pick = static_cast<std::int64_t>(random >> 33);
  const bool is_signed = draw.dtype != DType::u8;
  switch (draw.reduction) {
    case Reduction::min:
    case Reduction::max:
      return pick % 101 - (is_signed ? 50 : 0);
    case Reduction::product: {
      constexpr std::int64_t kFactors[] = {1, 2, -1, 1};
      const std::int64_t factor = kFactors[pick % 4];
      return is_signed ? factor : std::abs(factor);
    }
    default:
      return pick % 7 - (is_signed ? 3 : 0);
  }
}

template <typename T>
T value_of(const Draw& draw, std::uint64_t rank, std::uint64_t index) noexcept {
  const std::uint64_t random = mixed(draw.seed, rank, index);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(
        draw.data == Data::whole ? static_cast<std::uint64_t>(whole_number(draw, random)) : random);
  } else {
    T value{};
    set(draw.data == Data::whole ? static_cast<double>(whole_number(draw, random))
                                 : static_cast<double>(random >> 11) * 0x1p-52 - 1.0,
        value);
    return value;
  }
}

template <typename T>
T reduced_integer(const Draw& draw, std::uint32_t ranks, std::uint64_t index) noexcept {
  using Wrapping = std::make_unsigned_t<T>;
  T result = value_of<T>(draw, 0, index);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    const T value = value_of<T>(draw, rank, index);
    const auto a = static_cast<std::uint64_t>(static_cast<Wrapping>(result));
    const auto b = static_cast<std::uint64_t>(static_cast<Wrapping>(value));
    switch (draw.reduction) {
      case Reduction::min:
        result = std::min(result, value);
        break;
      case Reduction::max:
        result = std::max(result, value);
        break;
      case Reduction::product:
        result = static_cast<T>(static_cast<Wrapping>(a * b));
        break;
      default:
        result = static_cast<T>(static_cast<Wrapping>(a + b));
        break;
    }
  }
  return result;
}

// The result in double, and how far from it roundings may lead.
template <typename T>
double reduced_float(const Draw& draw, std::uint32_t ranks, std::uint64_t index, double& slack) {
  double result = as_double(value_of<T>(draw, 0, index));
  double magnitude = std::abs(result);
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    const double value = as_double(value_of<T>(draw, rank, index));
    switch (draw.reduction) {
      case Reduction::min:
        result = std::min(result, value);
        break;
      case Reduction::max:
        result = std::max(result, value);
        break;
      case Reduction::product:
        result *= value;
        break;
      default:
        result += value;
        break;
    }
    magnitude += std::abs(value);
  }
  const bool average = draw.reduction == Reduction::average;
  if (average) {
    result /= ranks;
    magnitude /= ranks;
  }
  const bool ordered = draw.reduction == Reduction::min || draw.reduction == Reduction::max;
  // Every node rounds to the type once, the owner once more; products grow with each factor.
  if (ordered) {
    slack = 0;
  } else if (draw.data == Data::whole) {
    slack = average ? 2 * kEpsilon<T> * std::abs(result) : 0;
  } else {
    slack = 2 * ranks * kEpsilon<T> *
            std::max(magnitude, draw.reduction == Reduction::product ? 1.0 : 0.0);
  }
  return result;
}

template <typename T>
T element(std::span<const std::byte> bytes, std::uint64_t index) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void fill_as(const Draw& draw, std::uint32_t rank, std::span<std::byte> out) {
  for (std::uint64_t i = 0; i < out.size() / sizeof(T); ++i) {
    const T value = value_of<T>(draw, rank, i);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename T>
Comparison compare_as(const Draw& draw, std::uint32_t ranks, double tolerance,
                      std::span<const std::byte> output) {
  Comparison comparison;
  for (std::uint64_t i = 0; i < output.size() / sizeof(T); ++i) {
    const T got = element<T>(output, i);
    if constexpr (std::is_integral_v<T>) {
      if (got != reduced_integer<T>(draw, ranks, i)) ++comparison.wrong;
    } else {
      double slack = 0;
      const double error = std::abs(as_double(got) - reduced_float<T>(draw, ranks, i, slack));
      if (!(error <= (tolerance < 0 ? slack : tolerance))) ++comparison.wrong;
      comparison.max_error = std::max(comparison.max_error, error);
    }
  }
  return comparison;
}

// Calls function with a value of the dtype's C++ type.
template <typename Function>
auto dispatch(DType dtype, Function function) {
  switch (dtype) {
    case DType::f64:
      return function(double{});
    case DType::f16:
      return function(F16{});
    case DType::bf16:
      return function(Bf16{});
    case DType::i64:
      return function(std::int64_t{});
    case DType::i32:
      return function(std::int32_t{});
    case DType::u8:
      return function(std::uint8_t{});
    default:  // of the others every_kind_test.cc of the simulator has values
      break;
  }
  return function(float{});
}

}  // namespace

void fill(const Draw& draw, std::uint32_t rank, std::span<std::byte> out) {
  dispatch(draw.dtype, [&](auto type) { fill_as<decltype(type)>(draw, rank, out); });
}

Comparison compare_reduced(const Draw& draw, std::uint32_t ranks, double tolerance,
                           std::span<const std::byte> output) {
  return dispatch(draw.dtype, [&](auto type) {
    return compare_as<decltype(type)>(draw, ranks, tolerance, output);
  });
}

std::vector<double> reduced(const Draw& draw, std::uint32_t ranks, std::size_t count) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = dispatch(draw.dtype, [&](auto type) {
      if constexpr (std::is_integral_v<decltype(type)>) {
        return static_cast<double>(reduced_integer<decltype(type)>(draw, ranks, i));
      } else {
        double slack = 0;
        return reduced_float<decltype(type)>(draw, ranks, i, slack);
      }
    });
  }
  return values;
}

std::vector<double> as_doubles(DType dtype, std::span<const std::byte> values) {
  return dispatch(dtype, [&](auto type) {
    std::vector<double> result;
    for (std::size_t i = 0; i < values.size() / sizeof(type); ++i) {
      const auto value = element<decltype(type)>(values, i);
      if constexpr (std::is_integral_v<decltype(type)>) {
        result.push_back(static_cast<double>(value));
      } else {
        result.push_back(as_double(value));
      }
    }
    return result;
  });
}

Comparison compare_broadcast(const Draw& draw, std::uint32_t root,
                             std::span<const std::byte> output) {
  std::vector<std::byte> expected(output.size());
  fill(draw, root, expected);
  Comparison comparison;
  for (std::size_t i = 0; i < output.size(); ++i) comparison.wrong += output[i] != expected[i];
  return comparison;
}

bool parse_dtype(const std::string& name, DType& dtype) {
  for (int number = 0; number <= 6; ++number) {
    dtype = static_cast<DType>(number);
    if (dtype_name(dtype) == name) return true;
  }
  return false;
}

bool parse_reduction(const std::string& name, Reduction& reduction) {
  for (int number = 0; number <= 4; ++number) {
    reduction = static_cast<Reduction>(number);
    if (reduction_name(reduction) == name) return true;
  }
  return false;
}

}  // namespace tern::e2e
