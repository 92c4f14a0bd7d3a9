#include "bench/tuner_samples.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tern::bench {
namespace {

using nlohmann::json;

constexpr double kMany = 1e15;

double number(const json& value, double min, double max) {
  const double number = value.get<double>();
  if (!(number >= min && number <= max)) {
    throw std::out_of_range(fmt::format("{} is not in [{}, {}]", number, min, max));
  }
  return number;
}

RecordedCandidate candidate_of(const json& object) {
  RecordedCandidate result;
  result.candidate = {object.at("recipe").get<std::string>(), object.at("lossless").get<bool>()};
  for (const auto& row : object.at("samples")) {
    const CodecSample one{number(row.at(0), 0.0, 1e6), number(row.at(1), 0.0, 1e6),
                          number(row.at(2), 1e-6, 8.0), number(row.at(3), 0.0, 1e6)};
    result.samples.push_back(one);
    result.mean.encode_ns += one.encode_ns;
    result.mean.decode_ns += one.decode_ns;
    result.mean.loss += one.loss;
  }
  if (result.samples.empty()) throw std::out_of_range(result.candidate.recipe + " has no samples");
  const auto count = static_cast<double>(result.samples.size());
  result.mean.wire = 0.0;
  for (const CodecSample& one : result.samples) result.mean.wire += one.wire / count;
  result.mean.encode_ns /= count;
  result.mean.decode_ns /= count;
  result.mean.loss /= count;
  return result;
}

}  // namespace

std::vector<tuner::Candidate> TunerSamples::list() const {
  std::vector<tuner::Candidate> result;
  for (const RecordedCandidate& one : candidates) result.push_back(one.candidate);
  return result;
}

Result<TunerSamples> parse_tuner_samples(const json& object) {
  TunerSamples samples;
  try {
    samples.chunk_bytes = number(object.at("chunk_bytes"), 1024.0, 1e9);
    samples.lane_byte_ns = number(object.at("lane").at("byte_ns"), 0.0, 1e3);
    samples.lane_chunk_ns = number(object.at("lane").at("chunk_ns"), 0.0, 1e9);
    for (const auto& one : object.at("candidates")) samples.candidates.push_back(candidate_of(one));
    for (const auto& one : object.at("ops")) {
      samples.ops.push_back({one.at("recipe").get<std::string>(), number(one.at("bytes"), 1, kMany),
                             number(one.at("rate"), 1, kMany), number(one.at("ns"), 1, kMany)});
    }
  } catch (const std::exception& error) {
    return fail(Errc::invalid_argument, error.what());
  }
  if (samples.candidates.empty() || samples.candidates.size() > tuner::kMaxCandidates ||
      samples.candidates[0].candidate.recipe != "raw") {
    return fail(Errc::invalid_argument,
                fmt::format("it must have 1 to {} candidates, raw first", tuner::kMaxCandidates));
  }
  return samples;
}

Result<TunerSamples> read_tuner_samples(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(Errc::invalid_argument, path + ": cannot be opened");
  const json object = json::parse(file, nullptr, false);
  if (object.is_discarded()) return fail(Errc::invalid_argument, path + ": is no JSON");
  auto samples = parse_tuner_samples(object);
  if (!samples) return fail(samples.error().code, path + ": " + samples.error().text);
  return samples;
}

}  // namespace tern::bench
