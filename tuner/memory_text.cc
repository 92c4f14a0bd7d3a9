#include "tuner/memory_text.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tuner/tuner.h"

namespace tern::tuner {
namespace {

using nlohmann::json;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_json(const CandidateRecord& record) {
  return {{"wire", record.wire},
          {"loss", record.loss},
          {"loss_spread", record.loss_spread},
          {"fit", record.fit},
          {"tried", record.tried}};
}

}  // namespace

MemoryText::MemoryText(const Tuner& tuner)
    : tuner_(tuner), text_("{\"version\":" + std::to_string(Tuner::kMemoryVersion)) {
  for (const TensorMemory::Entry& entry : tuner.remembered_.entries()) names_.push_back(entry.name);
}

bool MemoryText::go_on() {
  switch (part_) {
    case Part::looking:
      if (look_at_next()) return true;
      next_declared_ = keys_.begin();
      text_ += ",\"tensors\":{";
      part_ = Part::declared;
      return true;
    case Part::declared:
      if (!write_next_declared()) part_ = Part::remembered;
      return true;
    case Part::remembered:
      if (write_next_remembered()) return true;
      text_ += "},\"undeclared\":[";
      has_items_ = false;
      part_ = Part::undeclared;
      return true;
    case Part::undeclared:
      if (write_next_undeclared()) return true;
      text_ += "]";
      write_rest();
      text_ += "}";
      part_ = Part::complete;
      return false;
    case Part::complete:
      return false;
  }
  return false;
}

bool MemoryText::look_at_next() {
  const auto found = tuner_.tensors_.lower_bound(next_key_);
  if (found == tuner_.tensors_.end()) return false;
  keys_[found->second.info.name].push_back(found->first);
  next_key_ = found->first + 1;
  return true;
}

bool MemoryText::write_next_declared() {
  if (next_declared_ == keys_.end()) return false;
  const auto& [name, keys] = *next_declared_++;
  const TensorMemory::Records* const before = tuner_.remembered_.find(name);
  TensorMemory::Records records;
  if (before != nullptr) records = *before;
  const std::span<const Candidate> candidates = tuner_.candidates();
  for (const TensorKey key : keys) {
    const auto found = tuner_.tensors_.find(key);
    if (found == tuner_.tensors_.end()) continue;  // it is remembered now
    const auto known = found->second.policy->records();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (known[i].measured) records[candidates[i].recipe] = known[i];
    }
  }
  write(name, records);
  return true;
}

bool MemoryText::write_next_remembered() {
  if (next_name_ == names_.size()) return false;
  const std::size_t place = next_name_++;
  const std::string& name = names_[place];
  const TensorMemory::Records* const records = tuner_.remembered_.find(name);
  if (records != nullptr && !keys_.contains(name) && write(name, *records)) {
    undeclared_.push_back(place);
  }
  return true;
}

bool MemoryText::write_next_undeclared() {
  if (next_undeclared_ == undeclared_.size()) return false;
  begin_item();
  text_ += text_of(names_[undeclared_[next_undeclared_++]]);
  return true;
}

bool MemoryText::write(const std::string& name, const TensorMemory::Records& records) {
  json recipes = json::object();
  for (const auto& [recipe, record] : records) {
    if (record.measured && recipe != "raw") recipes[recipe] = to_json(record);
  }
  if (recipes.empty()) return false;
  begin_item();
  text_ += text_of(name) + ":" + text_of(recipes);
  return true;
}

void MemoryText::begin_item() {
  if (std::exchange(has_items_, true)) text_ += ",";
}

// Of tensors there may be many; of this there is little.
void MemoryText::write_rest() {
  const std::span<const Candidate> candidates = tuner_.candidates();
  json speeds = json::object();
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    for (std::size_t size = 0; size < CodecSpeeds::kSizeClasses; ++size) {
      const CodecSpeeds::Speed& one = tuner_.speeds_.shadow(static_cast<CandidateIndex>(i), size);
      if (!one.known) continue;
      speeds[candidates[i].recipe][std::to_string(size)] = {{"encode_ns", one.encode_ns},
                                                            {"decode_ns", one.decode_ns}};
    }
  }
  json peers = json::object();
  for (const auto& [key, peer] : tuner_.peers_) {
    if (peer.window.known()) peers[key] = peer.window.mean();
  }
  const LaneCost lane = tuner_.lane_.cost();
  text_ += ",\"speeds\":" + text_of(speeds) + ",\"peers\":" + text_of(peers) +
           ",\"byte_ns\":" + text_of(lane.byte_ns) + ",\"chunk_ns\":" + text_of(lane.chunk_ns);
}

}  // namespace tern::tuner
