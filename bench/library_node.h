#pragma once

#include <memory>
#include <span>
#include <string>

#include "bench/contestant.h"
#include "bench/tern_contestant.h"

namespace tern::bench {

// A rank's connection through a libtern of another build, loaded from its file, so that two builds
// of the library are measured in one process. It is called by its C functions: they are what the
// versions have in common.
class LibraryNode {
 public:
  // Throws std::runtime_error where the library cannot be loaded, or refuses.
  LibraryNode(const std::string& library, const TernNode::Options& options);
  ~LibraryNode();
  LibraryNode(const LibraryNode&) = delete;
  LibraryNode& operator=(const LibraryNode&) = delete;

  // REQUIRES: the node outlives it; one tensor at a time is measured.
  std::unique_ptr<Contestant> contestant(const std::string& recipe, std::size_t count);

 private:
  class Library;
  class Measured;

  std::unique_ptr<Library> library_;
  tern_client* client_ = nullptr;
  tern_group* group_ = nullptr;
  std::span<float> memory_;
};

}  // namespace tern::bench
