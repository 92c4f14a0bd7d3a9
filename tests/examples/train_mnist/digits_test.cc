#include "examples/train_mnist/digits.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tern::train_mnist {
namespace {

TEST(FillBatch, MovesImagesByAtMostTheShift) {
  ImageSet set;
  set.pixels.assign(kImagePixels, 0);
  set.pixels[14 * kImageSide + 14] = 255;
  set.labels = {3};
  const std::vector<std::uint32_t> indices(200, 0);
  Batch batch;
  fill_batch(set, indices, {1, 9}, &batch);
  bool moved = false;
  for (Eigen::Index row = 0; row < batch.images.rows(); ++row) {
    Eigen::Index place = 0;
    batch.images.row(row).maxCoeff(&place);
    EXPECT_LE(std::abs(place / 28 - 14), 1);
    EXPECT_LE(std::abs(place % 28 - 14), 1);
    moved = moved || place != 14 * 28 + 14;
  }
  EXPECT_TRUE(moved);
  EXPECT_EQ(batch.labels, std::vector<std::uint8_t>(200, 3));

  Batch again;
  fill_batch(set, indices, {1, 9}, &again);
  EXPECT_EQ(batch.images, again.images);
  fill_batch(set, indices, {0, 9}, &batch);
  EXPECT_EQ(batch.images.row(0), batch.images.row(199));
}

TEST(Digits, RefusesAStepOfMoreImagesThanThereAre) {
  DataSet data;
  data.train.pixels.assign(10 * kImagePixels, 0);
  data.train.labels.assign(10, 1);
  DigitsOptions options;
  options.batch = 4;
  options.size = 3;
  EXPECT_THROW(Digits(data, options), std::runtime_error);
}

}  // namespace
}  // namespace tern::train_mnist
