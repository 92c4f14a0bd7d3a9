#include "examples/training/tern_server.h"

#include <algorithm>

namespace tern::training {

TernServer::TernServer(const ExchangeOptions& options, std::span<const Parameter> layout,
                       const Rank& rank)
    // The group's op_timeout ends every operation before that, and explains it better.
    : wait_ms_(options.timeout_ms + 5000) {
  for (const Parameter& parameter : layout) {
    tern_push_pull_options served = TERN_PUSH_PULL_OPTIONS_INIT;
    served.server = options.server_rank;
    served.name = parameter.name.c_str();
    served.count = parameter.count();
    served.reduction = TERN_AVERAGE;
    served.push_recipe = options.recipe.empty() ? nullptr : options.recipe.c_str();
    served.pull_recipe =
        options.pull_recipe.empty() ? served.push_recipe : options.pull_recipe.c_str();
    PushPull server = rank.group->declare(served);
    const PushPull::Shard shard = server.shard(options.rank);
    const OwnedPart owned{parameter.offset + shard.begin, shard.count};
    tensors_.push_back(
        {std::move(server), owned, rank.gradients.subspan(parameter.offset, parameter.count()),
         // Of the arena no less than an element can be had.
         rank.client->allocate<float>(std::max<std::size_t>(owned.count, 1)).first(owned.count),
         rank.client->allocate<float>(parameter.count()), std::nullopt});
  }
}

void TernServer::push(std::size_t tensor) {
  Served& served = tensors_[tensor];
  served.ticket = served.server.push<float>(served.gradient, served.sum);
}

std::span<const float> TernServer::pushed(std::size_t tensor) {
  finish(tensors_[tensor]);
  return tensors_[tensor].sum;
}

void TernServer::pull(std::size_t tensor, std::span<const float> difference) {
  Served& served = tensors_[tensor];
  std::copy(difference.begin(), difference.end(), served.sum.begin());
  served.ticket = served.server.pull<float>(served.sum, served.differences);
}

std::span<const float> TernServer::pulled(std::size_t tensor) {
  finish(tensors_[tensor]);
  return tensors_[tensor].differences;
}

void TernServer::finish(Served& served) const {
  if (!served.ticket.value().wait_for(wait_ms_)) throw Failure(TERN_ERR_TIMEOUT);
  served.ticket.reset();
}

std::uint64_t TernServer::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const Served& served : tensors_) {
    bytes += served.server.push_stats().bytes_sent + served.server.pull_stats().bytes_sent;
  }
  return bytes;
}

std::uint64_t TernServer::bytes_raw() const {
  std::uint64_t bytes = 0;
  for (const Served& served : tensors_) {
    bytes += served.server.push_stats().bytes_raw + served.server.pull_stats().bytes_raw;
  }
  return bytes;
}

}  // namespace tern::training
