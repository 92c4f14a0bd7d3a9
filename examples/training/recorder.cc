#include "examples/training/recorder.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <system_error>

namespace tern::training {
namespace {

static_assert(std::endian::native == std::endian::little, "the files say little-endian");

constexpr std::string_view kStepsHelp =
    "--record-steps takes steps from 1 and ranges of them, for example 1,10,100-115";

int read_step(std::string_view text, int last_step) {
  int step = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc{} || rest != text.data() + text.size() || step < 1) {
    throw std::runtime_error("'" + std::string(text) + "' is no step: " + std::string(kStepsHelp));
  }
  if (step > last_step) {
    throw std::runtime_error("--record-steps: step " + std::string(text) +
                             " is behind the last one, " + std::to_string(last_step));
  }
  return step;
}

// The header of version 1.0, padded so that the values begin at a multiple of 64 bytes.
std::string npy_header(const Parameter& parameter) {
  std::string shape = std::to_string(parameter.columns) + ",";
  if (parameter.rows != 1) shape = std::to_string(parameter.rows) + ", " + shape;
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBegin = 10;
  const std::size_t end = (kBegin + text.size() + 1 + 63) / 64 * 64;
  text.append(end - kBegin - text.size() - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() % 256);
  header += static_cast<char>(text.size() / 256);
  return header + text;
}

}  // namespace

std::vector<int> parse_record_steps(std::string_view text, int last_step) {
  std::set<int> steps;
  if (text.empty()) {
    for (std::int64_t step = 1; step <= last_step; step *= 10) {
      steps.insert(static_cast<int>(step));
    }
  }
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = std::min(part.find('-'), part.size());
    const int first = read_step(part.substr(0, dash), last_step);
    const int last = dash == part.size() ? first : read_step(part.substr(dash + 1), last_step);
    if (last < first) {
      throw std::runtime_error("'" + std::string(part) +
                               "' is no range: " + std::string(kStepsHelp));
    }
    for (int step = first; step <= last; ++step) steps.insert(step);
    if (comma + 1 == text.size()) throw std::runtime_error(std::string(kStepsHelp));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return {steps.begin(), steps.end()};
}

Recorder::Recorder(std::string folder, std::vector<int> steps, std::vector<Parameter> layout)
    : folder_(std::move(folder)), steps_(std::move(steps)), layout_(std::move(layout)) {
  if (folder_.empty()) {
    steps_.clear();
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    throw std::runtime_error("--record: cannot make the folder " + folder_ + ": " +
                             error.message());
  }
}

void Recorder::gradients(int step, std::size_t layer, std::span<const float> gradients) const {
  if (!recorded(step)) return;
  for (const Parameter& parameter : layout_) {
    if (parameter.layer == layer) write("grad", parameter, step, gradients);
  }
}

void Recorder::weights(int step, std::span<const float> parameters) const {
  if (!recorded(step) && !recorded(step - 1)) return;
  for (const Parameter& parameter : layout_) write("weight", parameter, step, parameters);
}

bool Recorder::recorded(int step) const {
  return std::binary_search(steps_.begin(), steps_.end(), step);
}

void Recorder::write(std::string_view kind, const Parameter& parameter, int step,
                     std::span<const float> flat) const {
  const std::string name =
      std::string(kind) + "_" + parameter.name + "_step" + std::to_string(step) + ".npy";
  const std::string path = (std::filesystem::path(folder_) / name).string();
  const auto bytes = std::as_bytes(flat.subspan(parameter.offset, parameter.count()));
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << npy_header(parameter);
  file.write(static_cast<const char*>(static_cast<const void*>(bytes.data())),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("--record: cannot write " + path);
}

}  // namespace tern::training
