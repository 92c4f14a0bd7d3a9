#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace tern::bench {

// The elements of a file in their own type, in the order of the file.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;

  std::size_t count() const { return bytes.size() / dtype_bytes(dtype); }
};

// A NumPy file of little-endian f32, f16 or bf16 (which NumPy calls V2), or, where `raw_dtype` is
// given and the file is no NumPy file, its bytes as they are.
Result<Tensor> read_tensor(const std::string& path, std::optional<DType> raw_dtype);

// The same values, which f32 can hold all.
std::vector<float> to_f32(const Tensor& tensor);

// f32, f16 or bf16.
std::optional<DType> dtype_named(std::string_view name);

}  // namespace tern::bench
