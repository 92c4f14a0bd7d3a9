// Any input, any recipe: every target gives the scalar target's block and residual, bit for bit.
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/target/target.h"
#include "fuzz_input.h"

using namespace tern;

namespace {

struct Outcome {
  wire::BlockHeader header;
  codec::EncodeResult result;
  std::vector<std::byte> payload;
  std::vector<float> residual;
};

Outcome encode_with(std::string_view target, const codec::Recipe& recipe,
                    const std::vector<float>& input, float state_scale) {
  TERN_CHECK(codec::target::force(target));
  Outcome outcome;
  outcome.residual.assign(input.size(), 0.125f);
  codec::EncodeRequest request;
  request.input = input;
  request.state = outcome.residual.data();
  request.state_scale = state_scale;
  request.fixed_scale_max = 3.0f;
  outcome.payload.resize(codec::encode_bound(recipe, input.size()));
  outcome.result =
      codec::encode(recipe, request, {outcome.payload, outcome.header}, fuzz::workspace());
  outcome.payload.resize(outcome.result.payload_bytes);
  return outcome;
}

// Two steps of a stream, the second one of changed values.
void compare_lossless(const fuzz::LosslessCase& chosen, const std::vector<float>& values) {
  std::vector<std::byte> first_payload, first_last;
  for (const std::string_view target : codec::target::supported()) {
    TERN_CHECK(codec::target::force(target));
    std::vector<float> input = values;
    std::vector<std::byte> last(4 * input.size()), seen = last, payload, out;
    for (std::uint64_t step = 0; step < 2; ++step) {
      const auto elements = std::as_bytes(std::span(input));
      payload.assign(elements.size(), std::byte{0});
      wire::BlockHeader header;
      const std::size_t length =
          codec::encode_lossless(chosen.recipe, {chosen.dtype, elements, last, step},
                                 {payload, header}, fuzz::workspace());
      payload.resize(length);
      if (length != 0) {
        out.assign(elements.size(), std::byte{0});
        TERN_CHECK(codec::decode_lossless({header, payload}, seen, out, fuzz::workspace()) ==
                   codec::DecodeStatus::ok);
        TERN_CHECK(std::memcmp(out.data(), elements.data(), out.size()) == 0);
        TERN_CHECK(seen == last);
      }
      for (std::size_t i = 0; i < input.size(); i += 7) input[i] = 1.0f;
    }
    if (target == codec::target::supported().front()) {
      first_payload = payload;
      first_last = last;
    }
    TERN_CHECK(payload == first_payload && last == first_last);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes(data, size);
  if (size != 0 && data[0] >= fuzz::kFirstLossless) {
    const fuzz::LosslessCase chosen = fuzz::take_lossless(bytes);
    compare_lossless(chosen, fuzz::take_floats(bytes));
    return 0;
  }
  const codec::Recipe recipe = fuzz::take_recipe(bytes);
  const float state_scale = (bytes.take<std::uint8_t>() & 1) != 0 ? 0.5f : 1.0f;
  const std::vector<float> input = fuzz::take_floats(bytes);
  const Outcome reference = encode_with("scalar", recipe, input, state_scale);
  for (const std::string_view target : codec::target::supported()) {
    const Outcome outcome = encode_with(target, recipe, input, state_scale);
    TERN_CHECK(outcome.result.nonfinite == reference.result.nonfinite);
    TERN_CHECK(outcome.header == reference.header);
    TERN_CHECK(outcome.payload == reference.payload);
    TERN_CHECK(input.empty() || std::memcmp(outcome.residual.data(), reference.residual.data(),
                                            4 * input.size()) == 0);
    if (outcome.result.nonfinite) continue;
    std::vector<float> out(input.size());
    TERN_CHECK(codec::decode({outcome.header, outcome.payload}, out, fuzz::workspace()) ==
               codec::DecodeStatus::ok);
  }
  return 0;
}
