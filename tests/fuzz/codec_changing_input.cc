// The input is written by another thread while it is encoded. Whatever the two passes saw, the
// block must be valid, the residual finite, and nobody may leave a span. The race is the point: do
// not run it under ThreadSanitizer.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/check.h"
#include "codec/codec.h"
#include "codec/target/target.h"
#include "fuzz_input.h"

using namespace tern;

namespace {

// One writer for the life of the process; it runs while `target` is set.
class Writer {
 public:
  Writer() : thread_([this] { run(); }) { thread_.detach(); }

  void start(std::vector<float>* target) { target_.store(target); }
  void stop() {
    target_.store(nullptr);  // sequentially consistent, or `busy_` could be read before it
    while (busy_.load()) {
    }
  }

 private:
  void run() {
    std::uint64_t state = 1;
    while (true) {
      busy_.store(true);
      std::vector<float>* const values = target_.load();
      if (values != nullptr && !values->empty()) write_some(*values, state);
      busy_.store(false);
      if (values == nullptr) std::this_thread::yield();
    }
  }

  static void write_some(std::vector<float>& values, std::uint64_t& state) {
    static constexpr float kValues[] = {0.0f, 1e38f, -1e38f, NAN, INFINITY, 1e-42f, 1.0f, -0.0f};
    for (int i = 0; i < 64; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::atomic_ref<float>(values[(state >> 33) % values.size()])
          .store(kValues[state >> 61], std::memory_order_relaxed);
    }
  }

  std::atomic<std::vector<float>*> target_{nullptr};
  std::atomic<bool> busy_{false};
  std::thread thread_;
};

// Never destroyed, because its thread never ends.
Writer& writer() {
  static Writer& one = *new Writer;
  return one;
}

// Blocks of one stream, between a sender's and a reader's copy of what was sent last. Nobody knows
// which values a block took, but both ends must have the same.
void follow_stream(const fuzz::LosslessCase& chosen, std::vector<float>& input) {
  const std::span<const std::byte> elements = std::as_bytes(std::span(input));
  std::vector<std::byte> sender(elements.begin(), elements.end());
  std::vector<std::byte> reader = sender;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const std::vector<std::byte> before = sender;
    std::vector<std::byte> payload(elements.size());
    wire::BlockHeader header;
    writer().start(&input);
    const std::uint32_t length =
        codec::encode_lossless(chosen.recipe, {chosen.dtype, elements, sender, step},
                               {payload, header}, fuzz::workspace());
    writer().stop();
    TERN_CHECK(length == 0 || length < elements.size());
    if (length == 0) {
      TERN_CHECK(sender == before);
      continue;
    }
    payload.resize(length);
    payload.shrink_to_fit();  // so that one byte read too far is found
    std::vector<std::byte> out(elements.size());
    TERN_CHECK(codec::decode_lossless({header, payload}, reader, out, fuzz::workspace()) ==
               codec::DecodeStatus::ok);
    TERN_CHECK(reader == sender);
    if (chosen.recipe.compressor == codec::Compressor::xordelta) TERN_CHECK(out == sender);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes(data, size);
  if (size != 0 && data[0] >= fuzz::kFirstLossless) {
    const fuzz::LosslessCase chosen = fuzz::take_lossless(bytes);
    const std::vector<float> values = fuzz::take_floats(bytes);
    for (const std::string_view target : codec::target::supported()) {
      TERN_CHECK(codec::target::force(target));
      std::vector<float> input = values;
      follow_stream(chosen, input);
    }
    return 0;
  }
  const codec::Recipe recipe = fuzz::take_recipe(bytes);
  std::vector<float> input = fuzz::take_floats(bytes);
  for (const std::string_view target : codec::target::supported()) {
    TERN_CHECK(codec::target::force(target));
    std::vector<float> residual(input.size(), 0.0f);
    std::vector<std::byte> payload(codec::encode_bound(recipe, input.size()));
    codec::EncodeRequest request;
    request.input = input;
    request.state = residual.data();
    request.fixed_scale_max = 2.0f;
    wire::BlockHeader header;
    writer().start(&input);
    const codec::EncodeResult result =
        codec::encode(recipe, request, {payload, header}, fuzz::workspace());
    writer().stop();
    for (const float value : residual) TERN_CHECK(std::isfinite(value));
    if (result.nonfinite) {
      for (float& value : input) value = std::isfinite(value) ? value : 1.0f;
      continue;
    }
    payload.resize(result.payload_bytes);
    std::vector<float> out(input.size());
    TERN_CHECK(codec::decode({header, payload}, out, fuzz::workspace()) == codec::DecodeStatus::ok);
  }
  return 0;
}
