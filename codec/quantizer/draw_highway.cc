// The kernels of qsgd and terngrad for every vector target: the plain loops of draw_loops.h.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/draw_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/quantizer/draw_loops.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

TERN_DRAW_TABLE(kTable);
inline const DrawKernels* draw_table() noexcept { return &kTable; }

#else

inline const DrawKernels* draw_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(DrawKernels, draw_highway, draw_table)

const DrawKernels& draw_kernels() noexcept { return target::choose(draw_highway, kDrawScalar); }

}  // namespace tern::codec::quantizer
#endif
