#include "examples/training/mlp.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>

#include "examples/training/random.h"

namespace tern::training {
namespace {

constexpr std::array<std::size_t, 4> kWidths{300, 128, 128, 10};

struct Batch {
  Matrix input;
  std::vector<std::uint8_t> labels;
};

Batch random_batch(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.input.resize(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(kWidths.front()));
  for (Eigen::Index i = 0; i < batch.input.size(); ++i) {
    batch.input.data()[i] = random.normal();
  }
  for (std::size_t i = 0; i < count; ++i) {
    batch.labels.push_back(static_cast<std::uint8_t>(random.below(kWidths.back())));
  }
  return batch;
}

// A network behind another tensor, as behind an embedding.
struct Model {
  Model() {
    append_parameter("first", {7, 3}, 0, &layout);
    append_mlp(kWidths, &layout);
    parameters.resize(parameter_count(layout));
    network.emplace(std::vector<Parameter>(layout.begin() + 1, layout.end()), parameters);
    network->initialise(1);
  }
  float gradient(const Batch& batch, std::span<float> gradients) {
    return network->gradient(
        {batch.input, batch.labels}, gradients, [](std::size_t) {}, nullptr);
  }

  std::vector<Parameter> layout;
  std::vector<float> parameters;
  std::optional<Mlp> network;
};

TEST(Mlp, ParametersLieBehindEachOther) {
  const Model model;
  std::size_t offset = 0;
  for (const Parameter& parameter : model.layout) {
    EXPECT_EQ(parameter.offset, offset) << parameter.name;
    offset += parameter.count();
  }
  EXPECT_EQ(offset, parameter_count(model.layout));
  EXPECT_EQ(layer_count(model.layout), 4U);
}

TEST(Mlp, TheGradientIsTheSlopeOfTheLoss) {
  Model model;
  const Batch batch = random_batch(8, 2);
  std::vector<float> gradient(model.parameters.size());
  std::vector<float> unused(model.parameters.size());
  model.gradient(batch, gradient);
  for (std::size_t index = 1; index < model.layout.size(); ++index) {
    const Parameter& parameter = model.layout[index];
    // The largest element of each tensor, where rounding disturbs a difference least.
    std::size_t place = parameter.offset;
    for (std::size_t i = 0; i < parameter.count(); ++i) {
      if (std::fabs(gradient[parameter.offset + i]) > std::fabs(gradient[place])) {
        place = parameter.offset + i;
      }
    }
    constexpr float kStep = 1e-2F;
    const float saved = model.parameters[place];
    model.parameters[place] = saved + kStep;
    const float above = model.gradient(batch, unused);
    model.parameters[place] = saved - kStep;
    const float below = model.gradient(batch, unused);
    model.parameters[place] = saved;
    const float slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(slope, gradient[place], 0.03F * std::fabs(gradient[place]) + 1e-3F)
        << parameter.name;
  }
}

TEST(Mlp, TheGradientOfTheInputIsTheSlopeToo) {
  Model model;
  Batch batch = random_batch(8, 3);
  std::vector<float> gradient(model.parameters.size());
  Matrix input_gradient;
  model.network->gradient(
      {batch.input, batch.labels}, gradient, [](std::size_t) {}, &input_gradient);
  Eigen::Index row = 0;
  Eigen::Index column = 0;
  const float slope = input_gradient.cwiseAbs().maxCoeff(&row, &column);
  constexpr float kStep = 1e-2F;
  batch.input(row, column) += kStep;
  const float above = model.gradient(batch, gradient);
  batch.input(row, column) -= 2 * kStep;
  const float below = model.gradient(batch, gradient);
  EXPECT_NEAR((above - below) / (2 * kStep), input_gradient(row, column), 0.05F * slope + 1e-3F);
}

TEST(Mlp, ALayerIsReadyWhenItsGradientIsFinalFromTheLastToTheFirst) {
  Model model;
  const Batch batch = random_batch(4, 5);
  std::vector<float> gradient(model.parameters.size());
  std::vector<float> seen(model.parameters.size());
  std::vector<std::size_t> order;
  const auto ready = [&](std::size_t layer) {
    order.push_back(layer);
    for (const Parameter& parameter : model.layout) {
      const auto begin = static_cast<std::ptrdiff_t>(parameter.offset);
      if (parameter.layer != layer) continue;
      std::copy_n(gradient.begin() + begin, parameter.count(), seen.begin() + begin);
    }
  };
  model.network->gradient({batch.input, batch.labels}, gradient, ready, nullptr);
  EXPECT_EQ(order, (std::vector<std::size_t>{3, 2, 1}));
  EXPECT_EQ(seen, gradient);
}

TEST(Mlp, StepsDownTheGradientLearnABatchByHeart) {
  Model model;
  const Batch batch = random_batch(16, 6);
  std::vector<float> gradient(model.parameters.size());
  const float first = model.gradient(batch, gradient);
  float last = first;
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      model.parameters[i] -= 0.05F * gradient[i];
    }
    last = model.gradient(batch, gradient);
  }
  EXPECT_LT(last, 0.1F * first);
}

}  // namespace
}  // namespace tern::training
