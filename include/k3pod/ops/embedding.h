#pragma once

#include <cstdint>
#include <span>

#include "k3pod/device/matrix.h"

namespace k3pod::ops {

// out[T, H] = row ids[t] of table[V, H], widened to fp32 and not scaled. Each id in [0, V): the
// caller has checked.
void embed(const MatrixView& table, std::span<const int32_t> ids,  // [T]
           std::span<float> out);                                  // [T, H]

}  // namespace k3pod::ops
