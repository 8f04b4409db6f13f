#include <utility>

#include "k3pod/device/cuda.h"
#include "k3pod/kernels/support.h"
#include "k3pod/model/cuda_model.h"
#include "model/check_arguments.h"
#include "model/cuda/forward.h"

namespace k3pod {

Result<std::unique_ptr<CudaModel>> CudaModel::create(const ModelConfig& config,
                                                     StationWeights weights, StateStore& state,
                                                     const CudaModelOptions& options) {
    K3POD_TRY(kernels::check_gpu_supported(kCudaModelDevice));
    K3POD_TRY(use_cuda_device(kCudaModelDevice));
    K3POD_TRY(check_model_arguments(config, weights, state.shape(), options.max_rows));
    K3POD_ASSIGN(DeviceWeights uploaded,
                 DeviceWeights::upload(config, std::move(weights), options.write));
    return CudaForwardPass::create(config, std::move(uploaded), state, options);
}

}  // namespace k3pod
