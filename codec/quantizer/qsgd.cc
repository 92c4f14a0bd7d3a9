// Stochastic rounding to a few levels of a norm: QSGD (Alistarh, Grubic, Li, Tomioka and Vojnovic,
// NIPS 2017), and with one level of the largest magnitude TernGrad (Wen, Xu, Yan, Wu, Wang, Chen
// and Li, NIPS 2017). |x| / norm * levels is rounded up with the probability of its fraction.
//
// As drawn it is unbiased. Error feedback needs a contraction instead, and any unbiased Q with
// variance omega has one in Q / (1 + omega). Under `contractive` the norm that is sent is the one
// with the least squared error for the codes that were drawn. For every draw that is at least as
// near as Q / (1 + omega), so the contraction is at least delta = 1 / (1 + omega), and mostly far
// better, because omega is the worst case.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "codec/quantizer/draw_kernels.h"
#include "codec/quantizer/implementation.h"

namespace tern::codec::quantizer {
namespace {

constexpr std::size_t kTile = 320;
constexpr std::size_t kTileColumns = 64;
constexpr std::uint8_t kLargestColumn = 242;
// Elements at a time through a buffer of codes; whole tiles, and a whole number of sum lanes.
constexpr std::size_t kStride = 4 * kTile;

enum class Form { columns, pairs, bytes };

std::uint32_t levels_of(const Params& params) noexcept {
  return params.kind == Kind::terngrad ? 1u : std::clamp<std::uint32_t>(params.levels, 1, 127);
}

Form form_of(std::uint32_t levels) noexcept {
  return levels == 1 ? Form::columns : levels <= 7 ? Form::pairs : Form::bytes;
}

std::size_t body_bytes(Form form, std::size_t elements) noexcept {
  if (form == Form::bytes) return elements;
  const std::size_t codes = form == Form::pairs ? 2 : 5;
  return (elements + codes - 1) / codes;
}

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  return {sizeof(float) * block_count(elements, params.block),
          body_bytes(form_of(levels_of(params)), elements)};
}

// Blocks that are no multiple of a run would be summed in other lanes by pieces than as a whole.
std::size_t piece(const Params& params) noexcept {
  if (params.block == 0 || params.block % 64 != 0) return 0;
  const std::size_t codes = form_of(levels_of(params)) == Form::columns ? kTile : 64;
  return std::lcm<std::size_t>(codes, params.block);
}

double sum_of(const double* lanes) noexcept {
  double sum = 0.0;
  for (std::size_t lane = 0; lane < kSumLanes; ++lane) sum += lanes[lane];
  return sum;
}

// Of a block; infinite if f32 cannot hold it.
float norm_of(const DrawKernels& kernels, const Params& params,
              std::span<const float> values) noexcept {
  double lanes[kSumLanes] = {};
  if (params.kind == Kind::qsgd && params.two_norm) {
    kernels.squares(values.data(), values.size(), lanes);
    return static_cast<float>(std::sqrt(sum_of(lanes)));
  }
  const float largest = std::bit_cast<float>(kernels.largest(values.data(), values.size()));
  if (params.kind != Kind::terngrad || !(params.clip > 0.0f)) return largest;
  // The mean of a gradient is near zero beside its deviation, which is therefore the root of the
  // mean square. What is larger is drawn as the norm itself, so nothing needs to be written.
  kernels.squares(values.data(), values.size(), lanes);
  const double deviation = std::sqrt(sum_of(lanes) / static_cast<double>(values.size()));
  return std::min(largest, static_cast<float>(static_cast<double>(params.clip) * deviation));
}

// Near the end of f32 the largest level may come out infinite, because its unit was rounded up.
bool usable(float norm, std::uint32_t levels) noexcept {
  const auto most = static_cast<float>(levels);
  return norm >= 0.0f && std::isfinite(norm / most * most);
}

void store_norm(std::byte* side, std::size_t block, float norm) noexcept {
  std::memcpy(side + sizeof(float) * block, &norm, sizeof(norm));
}

float load_norm(const std::byte* side, std::size_t block) noexcept {
  float norm;
  std::memcpy(&norm, side + sizeof(float) * block, sizeof(norm));
  return norm;
}

// A tile that is not full is packed as a tensor of its own: `columns` columns, runs as long. The
// digits past the end are ternary zeros.
void pack_rest(const std::uint8_t* codes, std::size_t count, std::uint8_t* out) noexcept {
  const std::size_t columns = (count + 4) / 5;
  for (std::size_t j = 0; j < columns; ++j) {
    unsigned column = 0;
    for (std::size_t run = 0; run < 5; ++run) {
      const std::size_t i = run * columns + j;
      column = 3 * column + (i < count ? codes[i] : 1u);
    }
    out[j] = static_cast<std::uint8_t>(column);
  }
}

void unpack_rest(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) noexcept {
  const std::size_t columns = (count + 4) / 5;
  for (std::size_t j = 0; j < columns; ++j) {
    unsigned column = bytes[j];
    for (std::size_t run = 5; run-- > 0; column /= 3) {
      const std::size_t i = run * columns + j;
      if (i < count) codes[i] = static_cast<std::uint8_t>(column % 3);
    }
  }
}

void pack(const DrawKernels& kernels, Form form, std::span<const std::uint8_t> all,
          std::uint8_t* out) noexcept {
  const std::uint8_t* codes = all.data();
  std::size_t count = all.size();
  if (form == Form::bytes) {
    std::memcpy(out, codes, count);
  } else if (form == Form::pairs) {
    kernels.pack_pairs(codes, count / 2, out);
    if (count % 2 != 0) out[count / 2] = codes[count - 1];
  } else {
    for (; count >= kTile; count -= kTile, codes += kTile, out += kTileColumns) {
      kernels.pack_tile(codes, out);
    }
    pack_rest(codes, count, out);
  }
}

// False: a code that does not exist.
bool unpack(const DrawKernels& kernels, std::uint32_t levels, const std::uint8_t* bytes,
            std::span<std::uint8_t> all) noexcept {
  std::uint8_t* codes = all.data();
  std::size_t count = all.size();
  const Form form = form_of(levels);
  if (form == Form::columns) {
    if (kernels.largest_code(bytes, body_bytes(form, count)) > kLargestColumn) return false;
    for (; count >= kTile; count -= kTile, codes += kTile, bytes += kTileColumns) {
      kernels.unpack_tile(bytes, codes);
    }
    unpack_rest(bytes, count, codes);
    return true;
  }
  if (form == Form::pairs) {
    kernels.unpack_pairs(bytes, count / 2, codes);
    if (count % 2 != 0) codes[count - 1] = bytes[count / 2];
  } else {
    std::memcpy(codes, bytes, count);
  }
  return kernels.largest_code(codes, count) <= 2 * levels;
}

// The scale of the codes of a block that leaves the least squared error, as a norm.
class LeastSquares {
 public:
  void add(const DrawKernels& kernels, const Draw& request, const std::uint8_t* codes) noexcept {
    energy_ += kernels.dot(request, codes, lanes_);
  }
  float take(std::uint32_t levels) noexcept {
    const double sum = sum_of(lanes_);
    const double norm =
        energy_ == 0 ? 0.0 : sum * static_cast<double>(levels) / static_cast<double>(energy_);
    *this = LeastSquares();
    return static_cast<float>(norm);
  }

 private:
  double lanes_[kSumLanes] = {};
  std::uint64_t energy_ = 0;
};

bool write(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  const DrawKernels& kernels = draw_kernels();
  const std::size_t elements = input.values.size();
  const std::size_t block = params.block == 0 ? elements : params.block;
  const std::uint32_t levels = levels_of(params);
  const Form form = form_of(levels);
  LeastSquares fit;
  float norm = 0.0f;
  std::uint8_t codes[kStride];
  for (std::size_t begin = 0; begin < elements; begin += kStride) {
    const std::size_t end = std::min(begin + kStride, elements);
    for (std::size_t i = begin; i < end;) {
      const std::size_t number = i / block;
      const std::size_t block_end = std::min((number + 1) * block, elements);
      if (i == number * block) {
        norm = norm_of(kernels, params, input.values.subspan(i, block_end - i));
        if (!usable(norm, levels)) return false;
        store_norm(side, number, norm);
      }
      const Draw request = {input.values.data() + i,
                            std::min(block_end, end) - i,
                            input.key,
                            input.position + static_cast<std::uint32_t>(i),
                            norm,
                            levels};
      if (norm == 0.0f) {
        std::memset(codes + (i - begin), static_cast<int>(levels), request.count);
      } else {
        kernels.draw(request, codes + (i - begin));
      }
      if (input.contractive) fit.add(kernels, request, codes + (i - begin));
      i += request.count;
      if (input.contractive && i == block_end) {
        const float fitted = fit.take(levels);
        if (!usable(fitted, levels)) return false;
        store_norm(side, number, fitted);
      }
    }
    pack(kernels, form, {codes, end - begin},
         reinterpret_cast<std::uint8_t*>(body) + body_bytes(form, begin));
  }
  return true;
}

bool read(const Params& params, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  const DrawKernels& kernels = draw_kernels();
  const std::size_t block = params.block == 0 ? out.size() : params.block;
  const std::uint32_t levels = levels_of(params);
  std::uint8_t codes[kStride];
  for (std::size_t begin = 0; begin < out.size(); begin += kStride) {
    const std::size_t end = std::min(begin + kStride, out.size());
    const auto* const bytes =
        reinterpret_cast<const std::uint8_t*>(body) + body_bytes(form_of(levels), begin);
    if (!unpack(kernels, levels, bytes, {codes, end - begin})) return false;
    for (std::size_t i = begin; i < end;) {
      const float norm = load_norm(side, i / block);
      if (!usable(norm, levels)) return false;
      const std::size_t count = std::min((i / block + 1) * block, end) - i;
      kernels.expand(codes + (i - begin), count, {levels, norm / static_cast<float>(levels)},
                     out.data() + i);
      i += count;
    }
  }
  return true;
}

// Two-norm: the bound of the paper. Largest magnitude M: an element's variance is (M/s)^2 f (1 - f)
// with f the fraction of t = s|x|/M. That is at most (M/s)^2 / 4, and 0 for the largest element,
// and ||x|| >= M: (b - 1) / (4 s^2). And f (1 - f) <= t, so that the sum is at most M ||x||_1 / s,
// which is (1 + sqrt(b)) / 2 ||x||^2 / s at most. With one level the sum is M ||x||_1 - ||x||^2.
double variance(const Params& params, std::size_t elements) noexcept {
  if (params.kind == Kind::terngrad && params.clip > 0.0f) return -1.0;
  if (elements == 0) return 0.0;
  const std::size_t block =
      params.block == 0 ? elements : std::min<std::size_t>(params.block, elements);
  const auto b = static_cast<double>(block);
  const auto s = static_cast<double>(levels_of(params));
  if (params.kind == Kind::qsgd && params.two_norm) {
    return std::min(b / (s * s), std::sqrt(b) / s);
  }
  if (levels_of(params) == 1) return (std::sqrt(b) - 1.0) / 2.0;
  return std::min((b - 1.0) / (4.0 * s * s), (1.0 + std::sqrt(b)) / (2.0 * s));
}

}  // namespace

const Implementation kQsgd = {sizes_of, piece, write, read, variance};
const Implementation kTerngrad = {sizes_of, piece, write, read, variance};

}  // namespace tern::codec::quantizer
