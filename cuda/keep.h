#pragma once

#include <memory>
#include <utility>

#include "base/result.h"

namespace tern::cuda {

// Takes what a factory has made for a member, or says why there is nothing.
template <typename T>
Status keep(Result<std::unique_ptr<T>> made, std::unique_ptr<T>& member) {
  if (!made) return tl::unexpected(std::move(made.error()));
  member = std::move(*made);
  return {};
}

}  // namespace tern::cuda
