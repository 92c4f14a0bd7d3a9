#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

#include "tuner/tensor_policy.h"

namespace tern::tuner {

// What is known of tensors by their names, declared or not. Names of jobs that never come back must
// not pile up: the longest unused one makes room. Not thread-safe.
class TensorMemory {
 public:
  using Records = std::map<std::string, CandidateRecord>;  // by recipe
  struct Entry {
    std::string name;
    Records records;
  };

  explicit TensorMemory(std::size_t most) : most_(most) {}

  // Where there are more already, two go for each name that comes.
  void set_most(std::size_t most) noexcept { most_ = most; }
  // Null: nothing is known.
  const Records* find(const std::string& name) const;
  // The same. To ask is to use.
  const Records* use(const std::string& name);
  // To be changed until the next call. Where there was nothing it is empty.
  Records& renew(const std::string& name);
  // The longest unused one first.
  const std::list<Entry>& entries() const noexcept { return entries_; }

 private:
  using Place = std::list<Entry>::iterator;

  std::size_t most_;
  std::list<Entry> entries_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace tern::tuner
