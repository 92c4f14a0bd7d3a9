// What the tuner has learnt, as a document: what candidates do to tensors, how fast codecs and
// links are. A tensor's residual is not here, it belongs to the codec state. memory_text.h writes
// the document.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tuner/memory_text.h"
#include "tuner/tuner.h"

namespace tern::tuner {
namespace {

using nlohmann::json;

// A number of the document, in bounds.
double number(const json& object, const char* name, double min, double max) {
  const double value = object.at(name).get<double>();
  if (!std::isfinite(value) || value < min || value > max) {
    throw std::out_of_range(fmt::format("{} is {}, not in [{}, {}]", name, value, min, max));
  }
  return value;
}

CandidateRecord record_of(const json& object) {
  CandidateRecord record;
  record.measured = true;
  record.wire = number(object, "wire", 0.0, kMostWire);
  record.loss = number(object, "loss", 0.0, kMostLoss);
  record.loss_spread = number(object, "loss_spread", 0.0, kMostLoss);
  record.fit = number(object, "fit", 0.01, 100.0);
  record.tried = object.at("tried").get<bool>();
  return record;
}

}  // namespace

json Tuner::remember() const {
  MemoryText text(*this);
  while (text.go_on()) {
  }
  return json::parse(text.take_text());
}

Status Tuner::recall(const json& memory) {
  TensorMemory tensors(kMostRecalled);
  auto speeds = speeds_;
  std::map<PeerKey, double> rates;
  LaneCost lane;
  try {
    if (memory.at("version").get<int>() != kMemoryVersion) {
      return fail(Errc::version_mismatch, fmt::format("it is not of version {}", kMemoryVersion));
    }
    const auto take = [&tensors](const std::string& name, const json& recipes) {
      TensorMemory::Records& records = tensors.renew(name);
      for (const auto& [recipe, object] : recipes.items()) records[recipe] = record_of(object);
    };
    const json& described = memory.at("tensors");
    std::unordered_set<std::string> undeclared;
    for (const json& one : memory.value("undeclared", json::array())) {  // an older file has none
      const auto& name = one.get_ref<const std::string&>();
      if (undeclared.insert(name).second) take(name, described.at(name));
    }
    for (const auto& [name, recipes] : described.items()) {
      if (!undeclared.contains(name)) take(name, recipes);
    }
    for (std::size_t i = 1; i < candidates_.size(); ++i) {
      const auto found = memory.at("speeds").find(candidates_[i].recipe);
      if (found == memory.at("speeds").end()) continue;
      for (std::size_t size = 0; size < CodecSpeeds::kSizeClasses; ++size) {
        const auto one = found->find(std::to_string(size));
        if (one == found->end()) continue;
        speeds.set_shadow(
            static_cast<CandidateIndex>(i), size,
            {number(*one, "encode_ns", 0.0, 1e6), number(*one, "decode_ns", 0.0, 1e6), true});
      }
    }
    for (const auto& [key, rate] : memory.at("peers").items()) {
      rates[key] = rate.get<double>();
    }
    lane.byte_ns = number(memory, "byte_ns", 0.01, 100.0);
    lane.chunk_ns = number(memory, "chunk_ns", 1.0, 1e7);
  } catch (const std::exception& error) {
    return fail(Errc::invalid_argument, error.what());
  }
  remembered_ = std::move(tensors);
  remembered_.set_most(kMostRemembered);
  speeds_ = std::move(speeds);
  lane_.set_cost(lane);
  for (const auto& [key, rate] : rates) {
    if (peers_.size() >= kMostPeers) break;
    peers_[key].window.observe(rate, false);
  }
  return {};
}

}  // namespace tern::tuner
