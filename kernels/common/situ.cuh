#pragma once
// SiTU, the gate of every MLP.

#include "common/block.cuh"

namespace k3pod::kernels {

// [beta * tanh(gate / beta) * sigmoid(gate)] * [linear_beta * tanh(up / linear_beta)]
__device__ inline float situ(float gate, float up, float beta, float linear_beta) {
    return beta * tanhf(gate / beta) * sigmoid(gate) * (linear_beta * tanhf(up / linear_beta));
}

}  // namespace k3pod::kernels
