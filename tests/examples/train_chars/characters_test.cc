#include "examples/train_chars/characters.h"

#include <gtest/gtest.h>

#include <cmath>

#include "examples/training/exchange.h"
#include "examples/training/trainer.h"

namespace tern::train_chars {
namespace {

Characters small_model() {
  CharactersOptions options;
  options.batch = 16;
  return {load_text(TRAIN_CHARS_DATA), options};
}

TEST(Characters, AFewStepsLowerTheLoss) {
  Characters task = small_model();
  training::ExchangeOptions alone;
  alone.local = true;
  const auto exchange = training::make_exchange(alone, task.layout());
  training::TrainOptions options;
  options.steps = 60;
  options.batch = 16;
  options.warm_up_steps = 10;
  options.peak_rate = 0.05F;
  options.evaluate_every = 1000;
  const training::TrainReport report =
      training::train(options, {0, &task, exchange.get(), training::Recorder("", {}, {})});
  EXPECT_GT(report.first_loss, std::log(static_cast<float>(62)) - 1.0F);
  EXPECT_LT(report.last_loss, report.first_loss - 0.7F);
  EXPECT_GT(report.accuracy.back().accuracy, 0.1);
}

TEST(Characters, TheGradientOfTheEmbeddingIsTheSlopeOfTheLoss) {
  Characters task = small_model();
  task.initialise(1);
  const auto parameters = task.parameters();
  std::vector<float> gradient(parameters.size());
  std::vector<float> unused(parameters.size());
  const auto ignore = [](std::size_t) {};
  task.gradient(0, gradient, ignore);
  std::size_t place = 0;
  for (std::size_t i = 0; i < task.layout()[0].count(); ++i) {
    if (std::fabs(gradient[i]) > std::fabs(gradient[place])) place = i;
  }
  constexpr float kStep = 3e-3F;
  parameters[place] += kStep;
  const float above = task.gradient(0, unused, ignore);
  parameters[place] -= 2 * kStep;
  const float below = task.gradient(0, unused, ignore);
  EXPECT_NEAR((above - below) / (2 * kStep), gradient[place],
              0.05F * std::fabs(gradient[place]) + 1e-3F);
}

}  // namespace
}  // namespace tern::train_chars
