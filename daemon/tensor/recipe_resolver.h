#pragma once

// What a recipe means for one declaration of a tensor. The conductor resolves the declared recipe
// once; a lane resolves the recipe that an op brings of its own against the declared one. What
// depends on the single op (its kind, its reduction, its size) is left to the lane.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "base/versioned.h"
#include "codec/recipe.h"
#include "shm/layout.h"
#include "wire/op_frames.h"

namespace tern::daemon {

// What a recipe is judged by. An op without a tensor has the role `exact`: nothing may be lost of
// it.
struct RecipeTerms {
  DType dtype = DType::f32;
  Role role = Role::exact;
  bool exempt = false;
  bool has_tuner = false;  // somebody chooses for `auto`
  std::uint32_t nodes = 1;
  std::size_t chunk_elements = 1;

  bool may_lose() const noexcept { return role_may_be_lossy(role) && !exempt; }
  // One node sends nothing, and integers travel as they are.
  bool may_compress() const noexcept;
};

// The default is the declaration of an op without a tensor: raw, and nothing is remembered.
struct ResolvedRecipe {
  codec::Recipe recipe;
  // What an op may become that is large enough for it: at most one of `lossy` and `lossless` unless
  // the tuner chooses, who may take either.
  bool lossy = false;     // sums, averages and what moves lose
  bool lossless = false;  // blocks become shorter and lose nothing
  bool tuned = false;     // the tuner chooses among its candidates; none is fixed
  bool asked = false;     // the application has written the recipe out, and not `auto`
  bool one_lane = false;  // the chunks share a scale; the declaration's
  // What nodes must agree on, announced with each op. The declaration's, also where an op brings
  // its own recipe.
  wire::AnnouncedMemory announced_memory = wire::AnnouncedMemory::none;
  float alpha = 0.0f;  // AnnounceBody::alpha_bits; 0 without a tensor

  bool compresses() const noexcept { return lossy || lossless || tuned; }
};

// The error says why a tensor cannot be declared so.
Result<ResolvedRecipe> resolve_declared(std::string_view text, const RecipeTerms& terms);

// Whether ranks that declare these have the same codec state, step for step.
bool same_state(const ResolvedRecipe& a, const ResolvedRecipe& b) noexcept;

// An op's own recipe in place of the declared one.
struct OwnRecipe {
  ResolvedRecipe resolved;
  const char* problem = nullptr;  // why the op cannot be sent so; null: it can
};

// REQUIRES: `declared` was resolved for these terms, or is the default of an op without a tensor.
OwnRecipe resolve_own(const codec::Recipe& own, const ResolvedRecipe& declared,
                      const RecipeTerms& terms) noexcept;

// The texts of recipes that ops have brought lately, read. All lanes of a group share one table:
// every lane that has a chunk of an op gets the same text, and a training job brings the same few
// texts with every op. So the first lane that has the op parses its text, if nobody has before. A
// tensor's own table would have the texts of a thousand tensors a thousand times; what depends on
// the tensor, resolve_own(), is arithmetic and is not remembered.
//
// Thread: any lane, without locks and allocation. A text that is not there takes the place of the
// oldest. Lanes that miss the same text at the same time parse it each.
class RecipeTexts {
 public:
  static constexpr std::size_t kEntries = 16;

  // False if the text is no recipe.
  // REQUIRES: the text has less than shm::kRecipeTextBytes.
  [[nodiscard]] bool read(std::string_view text, codec::Recipe& recipe) noexcept;

  // How many texts have been parsed and remembered.
  std::uint64_t remembered() const noexcept { return remembered_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::array<char, shm::kRecipeTextBytes> text{};  // zero-padded
    codec::Recipe recipe;
  };
  std::array<Versioned<Entry>, kEntries> entries_;
  std::atomic<std::uint64_t> remembered_{0};
};

}  // namespace tern::daemon
