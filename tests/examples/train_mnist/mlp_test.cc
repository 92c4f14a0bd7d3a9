#include "examples/train_mnist/mlp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "examples/train_mnist/random.h"

namespace tern::train_mnist {
namespace {

Batch random_batch(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.images.resize(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(kImagePixels));
  for (Eigen::Index i = 0; i < batch.images.size(); ++i) {
    batch.images.data()[i] = random.normal();
  }
  for (std::size_t i = 0; i < count; ++i) {
    batch.labels.push_back(static_cast<std::uint8_t>(random.below(kClasses)));
  }
  return batch;
}

TEST(Mlp, ParametersLieBehindEachOther) {
  std::size_t offset = 0;
  for (const Parameter& parameter : kParameters) {
    EXPECT_EQ(parameter.offset, offset) << parameter.name;
    offset += parameter.count();
  }
  EXPECT_EQ(offset, kParameterCount);
}

TEST(Mlp, TheGradientIsTheSlopeOfTheLoss) {
  std::vector<float> parameters(kParameterCount);
  Mlp network(parameters);
  network.initialise(1);
  const Batch batch = random_batch(8, 2);
  std::vector<float> gradient(kParameterCount);
  std::vector<float> unused(kParameterCount);
  const auto ignore = [](std::size_t) {};
  network.gradient(batch, gradient, ignore);
  for (const Parameter& parameter : kParameters) {
    // The largest element of each tensor, where rounding disturbs a difference least.
    std::size_t place = parameter.offset;
    for (std::size_t i = 0; i < parameter.count(); ++i) {
      if (std::fabs(gradient[parameter.offset + i]) > std::fabs(gradient[place])) {
        place = parameter.offset + i;
      }
    }
    constexpr float kStep = 1e-2F;
    const float saved = parameters[place];
    parameters[place] = saved + kStep;
    const float above = network.gradient(batch, unused, ignore);
    parameters[place] = saved - kStep;
    const float below = network.gradient(batch, unused, ignore);
    parameters[place] = saved;
    const float slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(slope, gradient[place], 0.03F * std::fabs(gradient[place]) + 1e-3F)
        << parameter.name;
  }
}

TEST(Mlp, ALayerIsReadyWhenItsGradientIsFinalFromTheLastToTheFirst) {
  std::vector<float> parameters(kParameterCount);
  Mlp network(parameters);
  network.initialise(1);
  std::vector<float> gradient(kParameterCount);
  std::vector<float> seen(kParameterCount);
  std::vector<std::size_t> order;
  network.gradient(random_batch(4, 5), gradient, [&](std::size_t layer) {
    order.push_back(layer);
    for (const std::size_t index : {2 * layer, 2 * layer + 1}) {
      const auto begin = static_cast<std::ptrdiff_t>(kParameters[index].offset);
      std::copy_n(gradient.begin() + begin, kParameters[index].count(), seen.begin() + begin);
    }
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_EQ(seen, gradient);
}

TEST(Mlp, StepsDownTheGradientLearnABatchByHeart) {
  std::vector<float> parameters(kParameterCount);
  Mlp network(parameters);
  network.initialise(1);
  const Batch batch = random_batch(16, 6);
  std::vector<float> gradient(kParameterCount);
  const float first = network.gradient(batch, gradient, [](std::size_t) {});
  float last = first;
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < kParameterCount; ++i) {
      parameters[i] -= 0.05F * gradient[i];
    }
    last = network.gradient(batch, gradient, [](std::size_t) {});
  }
  EXPECT_LT(last, 0.1F * first);
}

TEST(FillBatch, MovesImagesByAtMostTheShift) {
  ImageSet set;
  set.pixels.assign(kImagePixels, 0);
  set.pixels[14 * kImageSide + 14] = 255;
  set.labels = {3};
  const std::vector<std::uint32_t> indices(200, 0);
  Batch batch;
  fill_batch(set, indices, 1, 9, &batch);
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
  fill_batch(set, indices, 1, 9, &again);
  EXPECT_EQ(batch.images, again.images);
  fill_batch(set, indices, 0, 9, &batch);
  EXPECT_EQ(batch.images.row(0), batch.images.row(199));
}

}  // namespace
}  // namespace tern::train_mnist
