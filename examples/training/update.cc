#include "examples/training/update.h"

#include "examples/training/model_server.h"

namespace tern::training {
namespace {

class AveragedUpdate : public Update {
 public:
  AveragedUpdate(const DescentOptions& options, Task* task, Exchange* exchange)
      : task_(task), exchange_(exchange), descent_(options, task->parameters().size()) {}

  void begin(std::size_t layer) override { exchange_->begin(layer); }

  void finish(float rate) override {
    const std::span<const float> gradients = exchange_->gradients();
    for (std::size_t layer = layer_count(task_->layout()); layer-- > 0;) {
      exchange_->wait(layer);
      for (const Parameter& parameter : task_->layout()) {
        if (parameter.layer != layer) continue;
        descent_.step(parameter.offset, rate,
                      gradients.subspan(parameter.offset, parameter.count()),
                      task_->parameters().subspan(parameter.offset, parameter.count()));
      }
    }
  }

 private:
  Task* task_;
  Exchange* exchange_;
  Descent descent_;
};

class ServedUpdate : public Update {
 public:
  ServedUpdate(const DescentOptions& options, Task* task, ModelServer* server)
      : task_(task),
        server_(server),
        descent_(options, task->parameters().size()),
        model_(task->parameters().begin(), task->parameters().end()) {}

  void begin(std::size_t layer) override {
    for (std::size_t i = 0; i < task_->layout().size(); ++i) {
      if (task_->layout()[i].layer == layer) server_->push(i);
    }
  }

  void finish(float rate) override {
    const std::vector<Parameter>& layout = task_->layout();
    // The last layer's gradients came first.
    for (std::size_t i = layout.size(); i-- > 0;) descend(i, rate);
    for (std::size_t i = layout.size(); i-- > 0;) {
      const std::span<const float> differences = server_->pulled(i);
      const std::span<float> copy = task_->parameters().subspan(layout[i].offset);
      for (std::size_t k = 0; k < differences.size(); ++k) copy[k] += differences[k];
    }
  }

 private:
  // What this rank owns of a tensor.
  void descend(std::size_t tensor, float rate) {
    const std::span<const float> gradients = server_->pushed(tensor);
    const OwnedPart owned = server_->owned(tensor);
    const std::span<float> values = std::span(model_).subspan(owned.begin, owned.count);
    difference_.assign(values.begin(), values.end());
    descent_.step(owned.begin, rate, gradients, values);
    for (std::size_t k = 0; k < values.size(); ++k) difference_[k] = values[k] - difference_[k];
    server_->pull(tensor, difference_);
  }

  Task* task_;
  ModelServer* server_;
  Descent descent_;
  std::vector<float> model_;  // as its owner has it; of what others own nothing is used
  std::vector<float> difference_;
};

}  // namespace

void Descent::step(std::size_t begin, float rate, std::span<const float> gradients,
                   std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& velocity = velocity_[begin + i];
    velocity = options_.momentum * velocity + gradients[i] + options_.weight_decay * values[i];
    values[i] -= rate * velocity;
  }
}

std::unique_ptr<Update> make_update(const DescentOptions& options, Task* task, Exchange* exchange) {
  if (ModelServer* const server = exchange->server()) {
    return std::make_unique<ServedUpdate>(options, task, server);
  }
  return std::make_unique<AveragedUpdate>(options, task, exchange);
}

}  // namespace tern::training
