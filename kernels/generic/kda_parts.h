#pragma once
// The two forms that kda() chooses from. Arguments have been checked and their strides filled in.

#include "k3pod/kernels/kda.h"

namespace k3pod::kernels {

Status kda_decode(const KdaArgs& args, CudaStream stream);
Status kda_prefill(const KdaArgs& args, CudaStream stream);

}  // namespace k3pod::kernels
