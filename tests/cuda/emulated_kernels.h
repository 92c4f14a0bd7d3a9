#pragma once

#include "tests/gpu/fake_cuda.h"

// The kernels of codec/device for the fake driver, run by the emulation. All that it finds wrong,
// races and places outside of the device's memory among it, fails the test.
namespace tern::cuda {

gpu::FakeCuda::Runner emulated_kernels(gpu::FakeCuda& fake);

}  // namespace tern::cuda
