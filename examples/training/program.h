#pragma once

#include <functional>
#include <memory>
#include <string>

#include "examples/training/exchange.h"
#include "examples/training/task.h"
#include "examples/training/trainer.h"

namespace tern::training {

struct ProgramOptions {
  std::string name;
  std::string description;
  std::string data_help;
  ExchangeOptions exchange;
  TrainOptions train;
  std::string data;
  std::string result;
  std::string record_folder;
  std::string record_steps;
  double timeout_seconds = 60.0;
};

// Reads the command line over the defaults in `options`, trains, reports. The exit status of main.
int run_program(int argc, char** argv, ProgramOptions options,
                const std::function<std::unique_ptr<Task>(const ProgramOptions&)>& make_task);

}  // namespace tern::training
