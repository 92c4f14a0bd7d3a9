#pragma once

// For which of Highway's targets the kernels are compiled. Included before any header of Highway.

// What has SSSE3 has SSE4 as well. Kernels for SSE4 are those for AVX2 with shorter vectors: builds
// with sanitizers go without, but for the address sanitizer's in `make test-full`.
// On aarch64 there are kernels for NEON alone; Highway's are for processors that have AES as well.
#if defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#elif defined(TERN_FEW_SIMD_TARGETS)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

// Whether there are kernels for the target of the present pass. In place of Highway's emulation of
// vectors the scalar reference serves.
#define TERN_CODEC_HAS_KERNELS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
