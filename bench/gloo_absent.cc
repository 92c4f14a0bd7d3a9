// Stands in for gloo_contestant.cc where Gloo is not installed.
#include <stdexcept>

#include "bench/gloo_contestant.h"

namespace tern::bench {

struct GlooNode::State {};

bool GlooNode::available() { return false; }

GlooNode::GlooNode(const Options&) {
  throw std::runtime_error("built without Gloo; install libgloo-dev and configure again");
}

GlooNode::~GlooNode() = default;

std::unique_ptr<Contestant> GlooNode::contestant(std::size_t) { return nullptr; }

std::unique_ptr<CollectiveRunner> GlooNode::runner(const CollectiveShape&, GlooAllReduce) {
  return nullptr;
}

}  // namespace tern::bench
