// What a rank does with codec state: checkpoints in files, and how far results are from the truth.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/e2e/rank_session.h"

namespace tern::e2e {
namespace {

double root_mean_square(const std::vector<double>& values, const std::vector<double>& from,
                        double factor) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += std::pow(factor * values[i] - from[i], 2);
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

std::string RankSession::save(const Command& command) {
  const auto found = tensors_.find(command.text("group") + "/" + command.text("name"));
  if (found == tensors_.end()) return invalid("no such tensor");
  std::uint64_t bytes = 0;
  if (const auto status = tern_tensor_state_bytes(found->second.handle, &bytes);
      status != TERN_OK) {
    return failed(status);
  }
  std::vector<char> part(bytes);
  const auto status =
      tern_tensor_export_state(found->second.handle, part.data(), part.size(), &bytes);
  if (status != TERN_OK) return failed(status);
  std::ofstream file(command.text("file"), std::ios::binary);
  file.write(part.data(), static_cast<std::streamsize>(bytes));
  return file.flush() ? "ok bytes=" + std::to_string(bytes) : invalid("the file is not written");
}

std::string RankSession::load(const Command& command) {
  const auto found = tensors_.find(command.text("group") + "/" + command.text("name"));
  if (found == tensors_.end()) return invalid("no such tensor");
  std::ifstream file(command.text("file"), std::ios::binary);
  const std::vector<char> part{std::istreambuf_iterator<char>(file), {}};
  const void* const parts[] = {part.data()};
  const std::uint64_t bytes[] = {part.size()};
  return outcome(tern_tensor_import_state(found->second.handle, parts, bytes, 1));
}

std::string RankSession::errors(const Op& op, const std::string& mean) {
  const auto result = as_doubles(op.draw.dtype, {op.output, op.bytes});
  const auto truth = reduced(op.draw, op.ranks, result.size());
  Mean& kept = means_[mean];
  kept.sum.resize(result.size(), 0.0);
  for (std::size_t i = 0; i < result.size(); ++i) kept.sum[i] += result[i];
  ++kept.results;
  const double scale = root_mean_square(truth, truth, 0.0);
  char text[96];
  std::snprintf(text, sizeof(text), " relative=%g of_mean=%g",
                root_mean_square(result, truth, 1.0) / scale,
                root_mean_square(kept.sum, truth, 1.0 / kept.results) / scale);
  return text;
}

}  // namespace tern::e2e
