#include "bench/npy.h"

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

namespace tern::bench {

Result<std::vector<float>> read_npy_f32(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(Errc::io_error, path + ": cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0) {
    return fail(Errc::corrupt_data, path + ": not a NumPy file");
  }
  // Version 1 has two bytes of header length, later ones four.
  const std::size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header_bytes |= std::size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  }
  const std::size_t begin = 8 + length_bytes + header_bytes;
  if (begin > bytes.size()) return fail(Errc::corrupt_data, path + ": cut off in its header");
  if (bytes.substr(0, begin).find("'<f4'") == std::string::npos) {
    return fail(Errc::unsupported, path + ": its type is not <f4");
  }
  std::vector<float> values((bytes.size() - begin) / sizeof(float));
  if (values.empty()) return fail(Errc::corrupt_data, path + ": has no elements");
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
  return values;
}

}  // namespace tern::bench
