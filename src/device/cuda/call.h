#pragma once
// How this room calls CUDA.

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

// Calls a function of CUDA's runtime and returns from the caller with a Status that has its name
// when it fails.
#define CUDA_TRY(call) K3POD_TRY(::k3pod::cuda_status((call), #call))
