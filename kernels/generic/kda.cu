#include "k3pod/kernels/kda.h"

#include "common/require.h"
#include "generic/kda_parts.h"

namespace k3pod::kernels {
namespace {

constexpr const char* kName = "kda";

Status check_vectors(const KdaArgs& args) {
    const KdaLayerState& state = args.state;
    const bool aligned = are_rows_vectors(state.recurrent, state.recurrent_stride) &&
                         are_rows_vectors(args.weights.q_conv, 4) &&
                         are_rows_vectors(args.weights.k_conv, 4) &&
                         are_rows_vectors(args.weights.v_conv, 4);
    return require(aligned, kName, "the stride of the state", state.recurrent_stride,
                   "a multiple of 4, with state and conv weights aligned to 16 bytes");
}

Status check(const KdaArgs& args) {
    const KdaShape& shape = args.shape;
    const StepChunks& chunks = args.chunks;
    K3POD_TRY(require(shape.heads > 0, kName, "heads", shape.heads, "at least 1"));
    K3POD_TRY(require(shape.head_dim > 0 && shape.head_dim % 16 == 0 && shape.head_dim <= 128,
                      kName, "head_dim", shape.head_dim, "a multiple of 16, at most 128"));
    K3POD_TRY(require(chunks.num_chunks >= 0 && chunks.num_chunks <= 65535, kName, "num_chunks",
                      chunks.num_chunks, "in [0, 65535]"));
    K3POD_TRY(require(chunks.max_rows >= 1 && chunks.max_rows <= 65535, kName, "max_rows",
                      chunks.max_rows, "in [1, 65535]"));
    K3POD_TRY(require(args.in.stride == 0 || args.in.stride >= shape.width(), kName,
                      "the stride of the inputs", args.in.stride,
                      "0 or at least heads * head_dim"));
    return check_vectors(args);
}

}  // namespace

int64_t kda_workspace_bytes(const KdaShape& shape, int32_t max_rows, int32_t num_rows) {
    if (max_rows <= 1) return 0;
    // q, k, v and decay, then <k, q> and beta.
    const int64_t floats = num_rows * (4 * int64_t{shape.width()} + 2 * int64_t{shape.heads});
    return floats * int64_t{sizeof(float)};
}

Status kda(const KdaArgs& args, CudaStream stream) {
    K3POD_TRY(check(args));
    if (args.chunks.num_chunks == 0) return Status::ok();
    KdaArgs full = args;
    if (full.in.stride == 0) full.in.stride = args.shape.width();
    if (full.in.b_stride == 0) full.in.b_stride = args.shape.heads;
    if (args.chunks.max_rows == 1) return kda_decode(full, stream);
    K3POD_TRY(require_pointer(args.workspace, kName, "workspace"));
    return kda_prefill(full, stream);
}

}  // namespace k3pod::kernels
