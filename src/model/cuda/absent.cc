// model/cuda_model.h in a program without the CUDA back end.

#include "k3pod/device/cuda.h"
#include "k3pod/model/cuda_model.h"

namespace k3pod {

Result<std::unique_ptr<CudaModel>> CudaModel::create(const ModelConfig&, StationWeights,
                                                     StateStore&, const CudaModelOptions&) {
    return cuda_properties(kCudaModelDevice).status();
}

}  // namespace k3pod
