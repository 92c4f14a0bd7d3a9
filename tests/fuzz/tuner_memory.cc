// A damaged memory of the tuner: it is refused as a whole, or a tuner lives on with it.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tuner/tuner.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto memory = nlohmann::json::parse(data, data + size, nullptr, false);
  if (memory.is_discarded()) return 0;
  tuner::Tuner tuner(tuner::usual_candidates());
  const auto before = tuner.remember();
  if (const Status status = tuner.recall(memory); !status) {
    TERN_CHECK(!status.error().text.empty());
    TERN_CHECK(tuner.remember() == before);
    return 0;
  }
  tuner::TensorInfo info;
  info.name = "w";
  info.shape.bytes = 1 << 20;
  info.peers = {"b"};
  tuner.add_tensor(1, info);
  const tuner::Choice choice = tuner.decide(1);
  TERN_CHECK(choice.reduce.size() == 1 && choice.broadcast < tuner.candidates().size());
  TERN_CHECK(!tuner.view(1).reason.empty());
  tuner::Tuner other(tuner::usual_candidates());
  TERN_CHECK(other.recall(tuner.remember()).has_value());
  return 0;
}
