#include "codec/kernels.h"
#include "codec/kernels_highway.h"

namespace tern::codec {

const ThreelcKernels& threelc_kernels() noexcept {
  if (target::active().vbmi2) {
    if (const ThreelcKernels* const kernels = threelc_avx512()) return *kernels;
  }
  return target::choose(threelc_highway, kThreelcScalar);
}

const ConvertKernels& convert_kernels() noexcept {
  return target::choose(convert_highway, kConvertScalar);
}

}  // namespace tern::codec
