#include "bench/tensor_file.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "base/half.h"

namespace tern::bench {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLeastHeader = 12;

struct TypeName {
  std::string_view text;
  DType dtype;
};
// Types that NumPy does not have it writes as bytes without a meaning; of those with two bytes only
// bf16 is common.
constexpr TypeName kNpyTypes[] = {{"'<f4'", DType::f32},
                                  {"'<f2'", DType::f16},
                                  {"'<V2'", DType::bf16},
                                  {"'|V2'", DType::bf16},
                                  {"'bfloat16'", DType::bf16}};

// Where the elements of a NumPy file begin, and their type.
Result<std::size_t> read_npy_header(const std::string& path, std::string_view bytes, DType& dtype) {
  if (bytes.size() < kLeastHeader) return fail(Errc::corrupt_data, path + ": cut off");
  // Version 1 has two bytes of header length, later ones four.
  const std::size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header_bytes |= std::size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  }
  const std::size_t begin = 8 + length_bytes + header_bytes;
  if (begin > bytes.size()) return fail(Errc::corrupt_data, path + ": cut off in its header");
  for (const TypeName& type : kNpyTypes) {
    if (bytes.substr(0, begin).find(type.text) != std::string_view::npos) {
      dtype = type.dtype;
      return begin;
    }
  }
  return fail(Errc::unsupported, path + ": its type is none of <f4, <f2 and bf16 (V2)");
}

}  // namespace

Result<Tensor> read_tensor(const std::string& path, std::optional<DType> raw_dtype) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Errc::io_error, path + ": cannot be opened");
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return fail(Errc::io_error, path + ": cannot be read");
  Tensor tensor;
  std::size_t begin = 0;
  if (all.starts_with(kMagic)) {
    const auto found = read_npy_header(path, all, tensor.dtype);
    if (!found) return tl::unexpected(found.error());
    begin = *found;
  } else if (raw_dtype) {
    tensor.dtype = *raw_dtype;
  } else {
    return fail(Errc::corrupt_data,
                path + ": not a NumPy file; --dtype says what the elements of a raw file are");
  }
  const auto bytes = std::as_bytes(std::span(all)).subspan(begin);
  if (bytes.empty()) return fail(Errc::corrupt_data, path + ": has no elements");
  if (bytes.size() % dtype_bytes(tensor.dtype) != 0) {
    return fail(Errc::corrupt_data, path + ": ends within an element");
  }
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

std::vector<float> to_f32(const Tensor& tensor) {
  std::vector<float> values(tensor.count());
  if (tensor.dtype == DType::f32) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, tensor.bytes.data() + i * sizeof(half), sizeof(half));
    values[i] = tensor.dtype == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
  }
  return values;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace tern::bench
