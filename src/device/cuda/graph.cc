#include <cuda_runtime_api.h>

#include "device/cuda/call.h"
#include "k3pod/device/cuda.h"

namespace k3pod {
namespace {

struct DestroyRecording {
    void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};

}  // namespace

Result<DeviceGraph> DeviceGraph::capture(CudaStream stream,
                                         const std::function<Status(CudaStream)>& record) {
    CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const Status recorded = record(stream);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    const std::unique_ptr<CUgraph_st, DestroyRecording> owned_recording(graph);
    K3POD_TRY(recorded);
    K3POD_TRY(cuda_status(ended, "cudaStreamEndCapture"));

    cudaGraphExec_t exec = nullptr;
    CUDA_TRY(cudaGraphInstantiate(&exec, graph, 0));
    DeviceGraph owned;
    owned.exec_.reset(exec);
    return owned;
}

void DeviceGraph::Destroy::operator()(CUgraphExec_st* exec) const {
    (void)cudaGraphExecDestroy(exec);
}

Status DeviceGraph::launch(CudaStream stream) const {
    CUDA_TRY(cudaGraphLaunch(exec_.get(), stream));
    return Status::ok();
}

}  // namespace k3pod
