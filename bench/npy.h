#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tern::bench {

// All elements of a NumPy file of little-endian f32, in the order of the file.
Result<std::vector<float>> read_npy_f32(const std::string& path);

}  // namespace tern::bench
