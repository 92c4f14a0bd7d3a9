#include "codec/sparsifier/sparsifier.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codec/sparsifier/implementation.h"

namespace tern::codec::sparsifier {
namespace {

const Implementation* find(Kind kind) noexcept {
  switch (kind) {
    case Kind::topk:
      return &kTopk;
    case Kind::randk:
    case Kind::blocksparse:
      return &kStrata;
    case Kind::none:
      break;
  }
  return nullptr;
}

const Implementation& implementation(Kind kind) noexcept {
  const Implementation* const found = find(kind);
  TERN_CHECK(found != nullptr);
  return *found;
}

}  // namespace

std::size_t count_of(const Params& params, std::size_t units) noexcept {
  if (units == 0) return 0;
  if (params.count != 0) return std::min<std::size_t>(params.count, units);
  // Rounded up, random shares keep at least the share of a chunk of any length, so that a short
  // chunk varies no more than a long one. A float's 0.1 is a little more than a tenth.
  const double exact = static_cast<double>(params.share) * static_cast<double>(units);
  const double wanted =
      params.kind == Kind::topk ? std::round(exact) : std::ceil(exact * (1.0 - 1e-6));
  // Written so that a NaN keeps all rather than becoming a number of its own.
  if (!(wanted < static_cast<double>(units))) return units;
  return wanted < 1.0 ? 1 : static_cast<std::size_t>(wanted);
}

std::size_t section_bound(const Params& params, std::size_t elements) noexcept {
  return implementation(params.kind).section_bound(params, elements);
}

std::size_t kept_bound(const Params& params, std::size_t elements) noexcept {
  return implementation(params.kind).kept_bound(params, elements);
}

Selection select(const Request& request) noexcept {
  return implementation(request.params.kind).select(request);
}

bool read_section(const SectionView& view, std::uint32_t* positions,
                  Selection& selection) noexcept {
  const Implementation* const found = find(view.kind);
  return found != nullptr && view.elements <= wire::kMaxBlockElements &&
         found->read_section(view, positions, selection);
}

double omega(const Params& params, std::size_t elements) noexcept {
  return implementation(params.kind).omega(params, elements);
}

}  // namespace tern::codec::sparsifier
