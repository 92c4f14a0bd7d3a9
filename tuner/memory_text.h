#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tuner/tensor_memory.h"

namespace tern::tuner {

class Tuner;

// What a tuner has learnt, as the text of a JSON document that recall() takes. It is made a tensor
// at a time, because there may be tens of thousands, and who writes has others to serve. Tensors
// may come and go meanwhile: the text has what is known of a tensor when its turn comes, and of one
// that has come since the beginning perhaps nothing. Not thread-safe.
class MemoryText {
 public:
  // Takes the names of what is remembered. REQUIRES: the tuner outlives this.
  explicit MemoryText(const Tuner& tuner);
  MemoryText(const MemoryText&) = delete;
  MemoryText& operator=(const MemoryText&) = delete;

  // Goes on by one tensor. False: the text is complete.
  bool go_on();
  // What has been added since it was asked last.
  std::string take_text() noexcept { return std::exchange(text_, {}); }
  std::size_t text_bytes() const noexcept { return text_.size(); }

 private:
  enum class Part : std::uint8_t { looking, declared, remembered, undeclared, complete };
  using Keys =
      std::map<std::string, std::vector<std::uint64_t>>;  // of the tuner's tensors, by name

  // False: there is no other.
  bool look_at_next();
  bool write_next_declared();
  bool write_next_remembered();
  bool write_next_undeclared();
  void write_rest();
  // False: nothing is known that is worth a place.
  bool write(const std::string& name, const TensorMemory::Records& records);
  void begin_item();

  const Tuner& tuner_;
  std::string text_;
  Part part_ = Part::looking;
  bool has_items_ = false;  // the list that is being written
  std::uint64_t next_key_ = 0;
  Keys keys_;
  Keys::const_iterator next_declared_;
  std::vector<std::string> names_;  // that are remembered, the longest unused one first
  std::size_t next_name_ = 0;
  std::vector<std::size_t> undeclared_;  // those that have been written, as places in names_
  std::size_t next_undeclared_ = 0;
};

}  // namespace tern::tuner
