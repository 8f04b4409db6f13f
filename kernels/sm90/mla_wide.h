#pragma once
// The fast path of mla_attend on sm_90, compiled where K3POD_KERNELS_SM90 is defined.

#include "k3pod/kernels/mla.h"

namespace k3pod::kernels {

inline constexpr int kWideMlaHeads = 96;   // of a block
inline constexpr int kWideMlaTokens = 64;  // of a tile; a page holds whole tiles

// K3's widths: a multiple of 96 heads, rank 512, rope 64.
bool is_wide_mla(const MlaDims& dims);

// mla_attend for arguments that have passed its checks, is_wide_mla() and pages of whole tiles, on
// a device of compute capability 9.0.
Status wide_mla_attend(const MlaAttendArgs& args, CudaStream stream);

}  // namespace k3pod::kernels
