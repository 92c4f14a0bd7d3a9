// The scalar target: the loops as the compiler makes them for any processor.
#include "codec/quantizer/draw_loops.h"

namespace tern::codec::quantizer {
namespace {

TERN_DRAW_TABLE(kTable);

}  // namespace

const DrawKernels kDrawScalar = kTable;

}  // namespace tern::codec::quantizer
