#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tern::train_mnist {

inline constexpr std::size_t kImageSide = 28;
inline constexpr std::size_t kImagePixels = kImageSide * kImageSide;
inline constexpr std::size_t kClasses = 10;

// Images as they lie in the file, one byte a pixel, row by row.
struct ImageSet {
  std::vector<std::uint8_t> pixels;  // count() * kImagePixels
  std::vector<std::uint8_t> labels;

  std::size_t count() const { return labels.size(); }
};

struct DataSet {
  ImageSet train;
  ImageSet test;
};

// Reads a pair of gzip-compressed IDX files. Foreign bytes: sizes and labels are checked, and a
// std::runtime_error says which file is wrong and how.
ImageSet load_images(const std::string& images_path, const std::string& labels_path);

// Reads a directory: the full MNIST set if it has the train-* files; otherwise the t10k-* files
// alone, split by a fixed shuffle in kSplitTest images for the test and the rest for training.
inline constexpr std::size_t kSplitTest = 1500;
DataSet load_data_set(const std::string& directory);

}  // namespace tern::train_mnist
