#pragma once
// NVFP4 to MXFP4 without changing a value.

#include <optional>

#include "k3pod/device/matrix.h"

namespace k3pod {

// The same weights with one E8M0 scale per 32 columns instead of two E4M3 scales and a factor: a
// 17th less to store and to read per token. The NVFP4 release is a cast of MXFP4, so this is exact
// for nearly every matrix; nothing when some block of this one has no such form.
std::optional<Matrix> repack_as_mxfp4(const MatrixView& nvfp4);

}  // namespace k3pod
