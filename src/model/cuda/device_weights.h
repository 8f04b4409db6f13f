#pragma once
// The station's weights in the memory of a GPU: the same matrices in the same formats, as views.

#include <array>
#include <cstdint>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/matrix.h"
#include "k3pod/kernels/kda.h"
#include "k3pod/model/cuda_model.h"
#include "k3pod/weights/model_weights.h"

namespace k3pod {

// Matrices that are products of the same rows lie in one array: one launch reads them all.
struct DeviceKda {
    enum Input : uint8_t { kQ, kK, kV, kG, kFA, kB };
    std::array<MatrixView, 6> inputs;
    MatrixView f_b_proj, o_proj;
    kernels::KdaLayerWeights parameters;
};

struct DeviceMla {
    enum Input : uint8_t { kQA, kKvA, kG };
    std::array<MatrixView, 3> inputs;
    MatrixView q_b_proj, kv_b_proj, o_proj;
    const float* q_a_norm = nullptr;
    const float* kv_a_norm = nullptr;
};

struct DeviceMlp {
    MatrixView gate_proj, up_proj, down_proj;
};

struct DeviceMoe {
    enum Input : uint8_t { kRouter, kLatentDown };
    std::array<MatrixView, 2> inputs;
    MatrixView latent_up;
    const float* router_bias = nullptr;
    const float* routed_norm = nullptr;
    DeviceMlp shared;
};

struct DeviceLayer {
    const float* input_norm = nullptr;
    const float* post_attention_norm = nullptr;
    const float* attention_mixer = nullptr;
    const float* mlp_mixer = nullptr;
    DeviceKda kda;
    DeviceMla mla;
    DeviceMlp dense;
    DeviceMoe moe;
};

class DeviceWeights {
  public:
    // Frees each layer's host memory once its bytes are on the GPU.
    static Result<DeviceWeights> upload(const ModelConfig& config, StationWeights weights,
                                        const MatrixWriter& write);

    MatrixView embed, lm_head;
    const float* final_norm = nullptr;
    const float* output_mixer = nullptr;
    std::vector<DeviceLayer> layers;

  private:
    friend class WeightUpload;
    std::vector<DeviceBuffer> memory_;
};

}  // namespace k3pod
