#include "examples/training/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace tern::training {
namespace update_test {

constexpr float kRate = 0.5F;
constexpr DescentOptions kOptions{.momentum = 0.5F, .weight_decay = 0.25F};

// Two tensors of a layer each, of three and two parameters.
class FakeTask : public Task {
 public:
  FakeTask() {
    append_parameter("first", {1, 3}, 0, &layout_);
    append_parameter("second", {1, 2}, 1, &layout_);
  }
  const std::vector<Parameter>& layout() const override { return layout_; }
  std::span<float> parameters() override { return values_; }
  void initialise(std::uint64_t) override {}
  float gradient(int, std::span<float>, const LayerReady&) override { return 0; }
  double accuracy() override { return 0; }

 private:
  std::vector<Parameter> layout_;
  std::vector<float> values_{1, 2, 3, 4, 5};
};

// Owns the middle one of the first tensor and all of the second. What it pulls is half of what it
// was given, and of what others own one.
class FakeServer : public ModelServer {
 public:
  OwnedPart owned(std::size_t tensor) const override {
    return tensor == 0 ? OwnedPart{1, 1} : OwnedPart{3, 2};
  }
  void push(std::size_t tensor) override { calls.push_back("push " + std::to_string(tensor)); }
  std::span<const float> pushed(std::size_t tensor) override {
    calls.push_back("pushed " + std::to_string(tensor));
    return std::span(gradients).subspan(owned(tensor).begin, owned(tensor).count);
  }
  void pull(std::size_t tensor, std::span<const float> difference) override {
    calls.push_back("pull " + std::to_string(tensor));
    differences[tensor].assign(difference.begin(), difference.end());
  }
  std::span<const float> pulled(std::size_t tensor) override {
    calls.push_back("pulled " + std::to_string(tensor));
    if (tensor == 0) return all = {1, differences[0][0] / 2, 1};
    return all = {differences[1][0] / 2, differences[1][1] / 2};
  }

  std::vector<float> gradients{10, 20, 30, 40, 50};
  std::vector<float> differences[2];
  std::vector<float> all;
  std::vector<std::string> calls;
};

class FakeExchange : public Exchange {
 public:
  explicit FakeExchange(ModelServer* server) : server_(server) {}
  std::span<float> gradients() override { return gradients_; }
  void broadcast(std::span<float>) override {}
  void begin(std::size_t layer) override { calls.push_back("begin " + std::to_string(layer)); }
  void wait(std::size_t layer) override { calls.push_back("wait " + std::to_string(layer)); }
  ModelServer* server() override { return server_; }
  void barrier() override {}
  void leave_together() override {}
  bool agree(std::span<const float>) override { return true; }
  std::uint64_t bytes_sent() const override { return 0; }
  std::uint64_t bytes_raw() const override { return 0; }
  int node() const override { return 0; }

  std::vector<std::string> calls;

 private:
  ModelServer* server_;
  std::vector<float> gradients_{10, 20, 30, 40, 50};
};

using Values = std::vector<float>;

Values values_of(FakeTask& task) { return {task.parameters().begin(), task.parameters().end()}; }

TEST(Descent, HasMomentumAndDecay) {
  Descent descent(kOptions, 3);
  Values values{2}, gradient{4};
  descent.step(1, kRate, gradient, values);
  EXPECT_EQ(values[0], 2 - kRate * 4.5F);  // 4 + 0.25 * 2
  descent.step(1, kRate, gradient, values);
  // 0.5 * 4.5 + 4 + 0.25 * -0.25
  EXPECT_EQ(values[0], -0.25F - kRate * 6.1875F);
  Values others{2};
  descent.step(2, kRate, gradient, others);
  EXPECT_EQ(others[0], 2 - kRate * 4.5F) << "each parameter has a velocity of its own";
}

TEST(Update, WithoutAServerEveryRankDescendsOnAllParametersTheLastLayerFirst) {
  FakeTask task;
  FakeExchange exchange(nullptr);
  const auto update = make_update({.momentum = 0, .weight_decay = 0}, &task, &exchange);
  update->begin(1);
  update->begin(0);
  update->finish(kRate);
  EXPECT_EQ(exchange.calls, (std::vector<std::string>{"begin 1", "begin 0", "wait 1", "wait 0"}));
  EXPECT_EQ(values_of(task), (Values{-4, -8, -12, -16, -20}));
}

TEST(Update, WithAServerWhatIsPulledIsAddedAndTheOwnersModelIsExact) {
  FakeTask task;
  FakeServer server;
  FakeExchange exchange(&server);
  const auto update = make_update({.momentum = 0, .weight_decay = 0.25F}, &task, &exchange);
  update->begin(1);
  update->begin(0);
  EXPECT_EQ(server.calls, (std::vector<std::string>{"push 1", "push 0"}));
  server.calls.clear();
  update->finish(kRate);
  EXPECT_EQ(server.calls, (std::vector<std::string>{"pushed 1", "pull 1", "pushed 0", "pull 0",
                                                    "pulled 1", "pulled 0"}));
  EXPECT_TRUE(exchange.calls.empty());
  // -0.5 (g + 0.25 value) of the middle one and the last two.
  EXPECT_EQ(server.differences[0], (Values{-10.25F}));
  EXPECT_EQ(server.differences[1], (Values{-20.5F, -25.625F}));
  EXPECT_EQ(values_of(task), (Values{2, 2 - 5.125F, 4, 4 - 10.25F, 5 - 12.8125F}));
  // The second step is from the owner's model, -8.25, and not from the copy.
  update->begin(1);
  update->begin(0);
  update->finish(kRate);
  EXPECT_EQ(server.differences[0], (Values{-0.5F * (20 + 0.25F * -8.25F)}));
}

}  // namespace update_test
}  // namespace tern::training
