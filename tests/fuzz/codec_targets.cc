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
      codec::encode(recipe, request, outcome.payload, outcome.header, fuzz::workspace());
  outcome.payload.resize(outcome.result.payload_bytes);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes(data, size);
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
    TERN_CHECK(codec::decode(outcome.header, outcome.payload, out, fuzz::workspace()) ==
               codec::DecodeStatus::ok);
  }
  return 0;
}
