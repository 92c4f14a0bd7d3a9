#include "examples/train_mnist/mnist.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

namespace tern::train_mnist {
namespace {

using Bytes = std::vector<std::uint8_t>;

class Mnist : public testing::Test {
 protected:
  Mnist() : folder_(testing::TempDir() + "mnist_test_" + std::to_string(::getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~Mnist() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const Bytes& bytes) const {
    std::string path = folder_ + "/" + name;
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    gzclose(file);
    return path;
  }

  static Bytes joined(const Bytes& head, const Bytes& body) {
    Bytes all(head.size() + body.size());
    std::copy(body.begin(), body.end(), std::copy(head.begin(), head.end(), all.begin()));
    return all;
  }
  static Bytes images(std::uint8_t count) {
    const Bytes bytes{0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28};
    return joined(bytes, Bytes(count * kImagePixels, 7));
  }
  static Bytes labels(std::uint8_t count, std::uint8_t label) {
    const Bytes bytes{0, 0, 8, 1, 0, 0, 0, count};
    return joined(bytes, Bytes(count, label));
  }

  std::string folder_;
};

TEST_F(Mnist, ReadsAPairOfFiles) {
  const ImageSet set = load_images(write("i", images(3)), write("l", labels(3, 9)));
  EXPECT_EQ(set.count(), 3U);
  EXPECT_EQ(set.pixels, Bytes(3 * kImagePixels, 7));
  EXPECT_EQ(set.labels, Bytes(3, 9));
}

TEST_F(Mnist, RefusesDamagedFiles) {
  const std::string good_images = write("i", images(3));
  const std::string good_labels = write("l", labels(3, 9));
  Bytes cut = images(3);
  cut.pop_back();
  Bytes long_file = images(3);
  long_file.push_back(0);
  Bytes wide = images(3);
  wide[15] = 29;
  for (const Bytes& bad : {cut, long_file, wide, labels(3, 1), Bytes{}, Bytes{0, 0, 8}}) {
    EXPECT_THROW(load_images(write("bad", bad), good_labels), std::runtime_error);
  }
  EXPECT_THROW(load_images(good_images, write("bad", labels(2, 1))), std::runtime_error);
  EXPECT_THROW(load_images(good_images, write("bad", labels(3, 10))), std::runtime_error);
  EXPECT_THROW(load_images(good_images, folder_ + "/absent"), std::runtime_error);
  EXPECT_THROW(load_data_set(folder_), std::runtime_error);
}

TEST_F(Mnist, RefusesADamagedGzipStream) {
  const std::string path = write("i", images(3));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THROW(load_images(path, write("l", labels(3, 9))), std::runtime_error);
}

TEST(EmbeddedMnist, IsSplitInDisjointPartsTheSameEveryTime) {
  const DataSet data = load_data_set(TRAIN_MNIST_DATA);
  EXPECT_EQ(data.train.count(), 8500U);
  EXPECT_EQ(data.test.count(), 1500U);
  const auto image = [](const ImageSet& set, std::size_t index) {
    const auto begin = set.pixels.begin() + static_cast<std::ptrdiff_t>(index * kImagePixels);
    return Bytes(begin, begin + kImagePixels);
  };
  std::set<Bytes> test_images;
  for (std::size_t i = 0; i < data.test.count(); ++i) {
    test_images.insert(image(data.test, i));
  }
  for (std::size_t i = 0; i < data.train.count(); ++i) {
    ASSERT_FALSE(test_images.contains(image(data.train, i))) << i;
  }
  EXPECT_EQ(data.test.pixels, load_data_set(TRAIN_MNIST_DATA).test.pixels);
}

}  // namespace
}  // namespace tern::train_mnist
