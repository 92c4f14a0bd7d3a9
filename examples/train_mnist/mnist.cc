#include "examples/train_mnist/mnist.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>

#include "examples/training/random.h"

namespace tern::train_mnist {
namespace {

// The full training set is 47 MB; a file that unpacks to more is not MNIST.
constexpr std::size_t kMaxFileBytes = 64U << 20;
constexpr std::uint64_t kSplitSeed = 20180222;

struct GzClose {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzFile = std::unique_ptr<gzFile_s, GzClose>;

std::vector<std::uint8_t> read_gzip(const std::string& path) {
  const GzFile file(gzopen(path.c_str(), "rb"));
  if (!file) {
    throw std::runtime_error("cannot open " + path +
                             "; is --data the folder with the MNIST files?");
  }
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint8_t> piece(1U << 20);
  for (;;) {
    const int got = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (got < 0) {
      throw std::runtime_error(path + " is not a gzip file, or is damaged");
    }
    if (got == 0) {
      return bytes;
    }
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + got);
    if (bytes.size() > kMaxFileBytes) {
      throw std::runtime_error(path + " is larger than any MNIST file");
    }
  }
}

// IDX numbers are big-endian. REQUIRES: offset + 4 <= bytes.size().
std::uint32_t big_endian_u32(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return (std::uint32_t{bytes[offset]} << 24) | (std::uint32_t{bytes[offset + 1]} << 16) |
         (std::uint32_t{bytes[offset + 2]} << 8) | std::uint32_t{bytes[offset + 3]};
}

// The bytes behind the header, or an error if header and length do not fit. `shape` is what an item
// measures: {28, 28} for images, {} for labels.
std::vector<std::uint8_t> idx_body(const std::string& path, const std::vector<std::size_t>& shape) {
  std::vector<std::uint8_t> bytes = read_gzip(path);
  const std::size_t header = 8 + 4 * shape.size();
  const auto magic = static_cast<std::uint32_t>(0x800 + 1 + shape.size());
  if (bytes.size() < header || big_endian_u32(bytes, 0) != magic) {
    throw std::runtime_error(path + " has no IDX header of the right kind");
  }
  std::size_t expected = big_endian_u32(bytes, 4);
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (big_endian_u32(bytes, 8 + 4 * axis) != shape[axis]) {
      throw std::runtime_error(path + " does not hold images of 28 by 28");
    }
    expected *= shape[axis];
  }
  if (bytes.size() - header != expected) {
    throw std::runtime_error(path + " is shorter or longer than its header says");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header));
  return bytes;
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

ImageSet select(const ImageSet& from, std::span<const std::uint32_t> indices) {
  ImageSet set;
  set.labels.reserve(indices.size());
  set.pixels.reserve(indices.size() * kImagePixels);
  for (const std::uint32_t index : indices) {
    const auto first = from.pixels.begin() + static_cast<std::ptrdiff_t>(index * kImagePixels);
    set.pixels.insert(set.pixels.end(), first, first + kImagePixels);
    set.labels.push_back(from.labels[index]);
  }
  return set;
}

}  // namespace

ImageSet load_images(const std::string& images_path, const std::string& labels_path) {
  ImageSet set{idx_body(images_path, {kImageSide, kImageSide}), idx_body(labels_path, {})};
  if (set.labels.empty() || set.pixels.size() != set.labels.size() * kImagePixels) {
    throw std::runtime_error(images_path + " and " + labels_path + " differ in length");
  }
  if (*std::max_element(set.labels.begin(), set.labels.end()) >= kClasses) {
    throw std::runtime_error(labels_path + " has a label that is no digit");
  }
  return set;
}

DataSet load_data_set(const std::string& directory) {
  const auto pair = [&](const std::string& prefix) {
    return load_images(directory + "/" + prefix + "-images-idx3-ubyte.gz",
                       directory + "/" + prefix + "-labels-idx1-ubyte.gz");
  };
  ImageSet t10k = pair("t10k");
  if (exists(directory + "/train-images-idx3-ubyte.gz")) {
    return {pair("train"), std::move(t10k)};
  }
  if (t10k.count() <= kSplitTest) {
    throw std::runtime_error(directory + " has too few images to split");
  }
  const std::vector<std::uint32_t> order = training::Random(kSplitSeed).permutation(t10k.count());
  const std::span<const std::uint32_t> all(order);
  return {select(t10k, all.subspan(kSplitTest)), select(t10k, all.first(kSplitTest))};
}

}  // namespace tern::train_mnist
