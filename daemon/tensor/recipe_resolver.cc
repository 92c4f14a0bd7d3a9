#include "daemon/tensor/recipe_resolver.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/codec.h"
#include "codec/entropy/codebook.h"
#include "daemon/tensor/codec_state.h"

namespace tern::daemon {
namespace {

wire::AnnouncedMemory announced(const codec::Recipe& recipe, codec::Compressor declared) noexcept {
  if (declared == codec::Compressor::xordelta) return wire::AnnouncedMemory::last_values;
  switch (recipe.memory) {
    case codec::Memory::none:
      return wire::AnnouncedMemory::none;
    case codec::Memory::ef:
      return wire::AnnouncedMemory::ef;
    case codec::Memory::diana:
      return wire::AnnouncedMemory::diana;
    case codec::Memory::ef21:
      return wire::AnnouncedMemory::ef21;
  }
  return wire::AnnouncedMemory::none;
}

bool lacks_codebook(const codec::Recipe& recipe) noexcept {
  return recipe.entropy.kind == codec::entropy::Kind::huffman_static &&
         !codec::entropy::has_codebook(recipe.entropy.book.data());
}

// Slabs have room for a raw chunk; shorter chunks make shorter blocks.
bool outgrows_slab(const codec::Recipe& recipe, const RecipeTerms& terms) noexcept {
  return codec::is_lossy(recipe) && codec::encode_bound(recipe, terms.chunk_elements) >
                                        terms.chunk_elements * dtype_bytes(terms.dtype);
}

// What is wrong with a recipe here, beyond what its text shows; empty if nothing is.
std::string problem_of(const codec::Recipe& recipe, const RecipeTerms& terms) {
  if (lacks_codebook(recipe)) {
    return std::string("this node has no codebook ") + recipe.entropy.book.data() +
           "; put its file into codebook_dir of every node and restart ternd";
  }
  if (outgrows_slab(recipe, terms)) {
    return "blocks of " + codec::canonical_text(recipe) + " may be longer than the " +
           std::string(dtype_name(terms.dtype)) + " tensor itself; keep or code less";
  }
  return {};
}

void classify(ResolvedRecipe& resolved, const RecipeTerms& terms, bool tuned) noexcept {
  const bool may_compress = terms.may_compress();
  resolved.tuned = may_compress && tuned;
  resolved.lossless = may_compress && codec::is_lossless(resolved.recipe);
  resolved.lossy = may_compress && terms.may_lose() && (tuned || codec::is_lossy(resolved.recipe));
}

// Null, or why an op may not lose by this recipe what the declaration lets it lose.
const char* objection_to_loss(const codec::Recipe& own, const codec::Recipe& declared,
                              const RecipeTerms& terms) noexcept {
  if (const char* objection = codec::objection_to_parts(own)) return objection;
  if (outgrows_slab(own, terms)) {
    return "blocks of the recipe may be longer than the tensor itself";
  }
  if (lacks_codebook(own)) return "this node does not have the recipe's codebook";
  // The shift moves by the declaration's alpha, which a wilder compressor would turn into noise.
  codec::Recipe own_alpha = own;
  own_alpha.alpha = 0.0f;
  if (own.memory == codec::Memory::diana &&
      codec::shift_alpha(own_alpha, terms.chunk_elements) <
          codec::shift_alpha(declared, terms.chunk_elements)) {
    return "the recipe varies more than the declared one, whose alpha is too large for it";
  }
  return nullptr;
}

const char* objection_to_own(const codec::Recipe& own, const ResolvedRecipe& declared,
                             const RecipeTerms& terms) noexcept {
  if (own.memory != declared.recipe.memory) {
    return "the recipe's memory differs from the declaration's; declare the tensor with it";
  }
  if (codec::scans_tensor(own) && !declared.one_lane) {
    return "scale=tensor must be in the tensor's declaration";
  }
  if (own.compressor == codec::Compressor::xordelta &&
      declared.recipe.compressor != codec::Compressor::xordelta) {
    return "xordelta must be in the tensor's declaration";
  }
  return codec::is_lossy(own) ? objection_to_loss(own, declared.recipe, terms) : nullptr;
}

}  // namespace

bool RecipeTerms::may_compress() const noexcept {
  return nodes > 1 && (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
}

Result<ResolvedRecipe> resolve_declared(std::string_view text, const RecipeTerms& terms) {
  const auto recipe = codec::parse_recipe(text);
  if (!recipe) return fail(Errc::bad_recipe, recipe.error().text);
  ResolvedRecipe resolved;
  resolved.recipe = *recipe;
  resolved.one_lane = codec::scans_tensor(*recipe);
  if (resolved.one_lane && !codec::needs_residual(*recipe)) {
    return fail(Errc::bad_recipe, "scale=tensor needs error feedback: ef(3lc:scale=tensor)");
  }
  classify(resolved, terms, recipe->automatic && terms.has_tuner);
  // All that the tuner may choose for what may be lossy has error feedback.
  if (resolved.tuned && terms.may_lose()) resolved.recipe.memory = codec::Memory::ef;
  if (resolved.compresses()) {
    if (std::string problem = problem_of(*recipe, terms); !problem.empty()) {
      return fail(Errc::bad_recipe, std::move(problem));
    }
  }
  resolved.announced_memory = announced(resolved.recipe, recipe->compressor);
  resolved.alpha =
      resolved.compresses() ? CodecState::alpha_of(resolved.recipe, terms.chunk_elements) : 1.0f;
  return resolved;
}

bool same_state(const ResolvedRecipe& a, const ResolvedRecipe& b) noexcept {
  return a.recipe.memory == b.recipe.memory && a.one_lane == b.one_lane &&
         a.compresses() == b.compresses() && a.alpha == b.alpha &&
         (!a.compresses() ||
          CodecState::has_streams(a.recipe) == CodecState::has_streams(b.recipe));
}

OwnRecipe resolve_own(const codec::Recipe& own, const ResolvedRecipe& declared,
                      const RecipeTerms& terms) noexcept {
  OwnRecipe made{declared};
  made.resolved.recipe = own;
  // Raw and bf16 say nothing of memory: they go with any declaration. Under ef, bf16 uses the
  // residual and raw leaves it alone.
  if (own.memory == codec::Memory::none) made.resolved.recipe.memory = declared.recipe.memory;
  made.resolved.asked = !own.automatic;
  made.problem = objection_to_own(made.resolved.recipe, declared, terms);
  // `auto` has a tuner only if the declaration has begun one.
  classify(made.resolved, terms, own.automatic && declared.tuned);
  return made;
}

bool RecipeTexts::read(std::string_view text, codec::Recipe& recipe) noexcept {
  Entry entry;
  for (const auto& one : entries_) {
    if (!one.try_read(entry) || text != std::string_view(entry.text.data())) continue;
    recipe = entry.recipe;
    return true;
  }
  if (!codec::parse_recipe_quick(text, recipe)) return false;
  if (text.size() >= entry.text.size()) return true;
  entry.text.fill('\0');
  std::copy(text.begin(), text.end(), entry.text.begin());
  entry.recipe = recipe;
  // The oldest is where the count points. If another lane is writing there, this text can wait.
  const std::uint64_t oldest = remembered_.load(std::memory_order_relaxed) % kEntries;
  if (entries_[oldest].try_write(entry)) remembered_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace tern::daemon
