#pragma once

namespace tern::cuda {

// The fat binary of codec/device/kernels.cu in this library; null: it was built where no nvcc was.
const void* kernel_image() noexcept;

}  // namespace tern::cuda
