#include "k3pod/kernels/gemm.h"

#include <algorithm>

#include "common/require.h"
#include "generic/gemm_paths.h"

namespace k3pod::kernels {
namespace {

Status check_weight(const MatrixView& w, const MatrixView& first, const char* kernel) {
    K3POD_TRY(require(w.rows > 0, kernel, "rows", w.rows, "above 0"));
    K3POD_TRY(require(w.cols > 0 && w.cols == first.cols, kernel, "cols", w.cols,
                      "above 0 and the same in all bands"));
    K3POD_TRY(require(w.format == first.format, kernel, "format", static_cast<int64_t>(w.format),
                      "the same in all bands"));
    K3POD_TRY(require_pointer(w.data, kernel, "data"));
    if (matrix_scale_bytes(w.format, w.rows, w.cols) == 0) return Status::ok();
    return require_pointer(w.scales, kernel, "scales");
}

Status check_rows(const DeviceRows& x, int32_t cols, const char* kernel) {
    K3POD_TRY(require((x.f32 != nullptr) != (x.bf16 != nullptr), kernel, "x", 0,
                      "exactly one of f32 and bf16"));
    return require(x.stride >= cols, kernel, "stride of x", x.stride, "at least cols");
}

Status check_rows_out(const DeviceRowsOut& y, int32_t width, const char* kernel) {
    K3POD_TRY(require(y.f32 != nullptr || y.bf16 != nullptr, kernel, "y", 0,
                      "at least one of f32 and bf16"));
    return require(y.stride >= width, kernel, "stride of y", y.stride, "at least the rows of W");
}

Status check(const GemmCall& call, const char* kernel) {
    K3POD_TRY(require(call.tokens >= 0, kernel, "tokens", call.tokens, "0 or more"));
    for (int32_t i = 0; i < call.num_bands; ++i) {
        const GemmBand& band = call.bands[i];
        K3POD_TRY(check_weight(band.weight, call.weight(), kernel));
        K3POD_TRY(check_rows_out(band.y, band.weight.rows, kernel));
        K3POD_TRY(require(!band.adds || band.y.f32 != nullptr, kernel, "y.f32", 0,
                          "set where a band adds"));
    }
    return check_rows(call.x, call.weight().cols, kernel);
}

// The same call for the rows of activations from `first` on, `count` of them.
GemmCall slice(const GemmCall& call, int32_t first, int32_t count) {
    const auto move = [first](auto* data, int64_t stride) {
        return data == nullptr ? data : data + first * stride;
    };
    GemmCall part = call;
    part.tokens = count;
    part.x.f32 = move(call.x.f32, call.x.stride);
    part.x.bf16 = move(call.x.bf16, call.x.stride);
    for (int32_t i = 0; i < call.num_bands; ++i) {
        DeviceRowsOut& y = part.bands[i].y;
        y.f32 = move(y.f32, y.stride);
        y.bf16 = move(y.bf16, y.stride);
    }
    return part;
}

// As many tokens at a time as shared memory has room for.
Status run_sliced(const GemmCall& call, CudaStream stream) {
    if (call.num_bands == 0) return Status::ok();
    K3POD_ASSIGN(const int32_t at_a_time, max_stream_tokens(call));
    if (at_a_time == 0) return plain_gemm(call, stream);
    for (int32_t first = 0; first < call.tokens; first += at_a_time) {
        const int32_t count = std::min(at_a_time, call.tokens - first);
        K3POD_TRY(stream_gemm(slice(call, first, count), stream));
    }
    return Status::ok();
}

Status run(const GemmCall& call, CudaStream stream) {
    if (call.tokens == 0) return Status::ok();
    GemmCall large = call, others = call;
    large.num_bands = others.num_bands = 0;
    for (int32_t i = 0; i < call.num_bands; ++i) {
        GemmCall& part = can_multiply_large(call.bands[i], call.tokens) ? large : others;
        part.bands[part.num_bands++] = call.bands[i];
    }
    if (call.is_gated && large.num_bands < call.num_bands) return run_sliced(call, stream);
    if (large.num_bands > 0) K3POD_TRY(large_gemm(large, stream));
    return run_sliced(others, stream);
}

}  // namespace

TiledBands tile_bands(const GemmCall& call) {
    TiledBands tiled;
    tiled.num_bands = call.num_bands;
    std::copy(call.bands, call.bands + call.num_bands, tiled.bands);
    if (call.is_gated) {
        tiled.num_tiles = (call.weight().rows + 7) / 8;
        return tiled;
    }
    for (int32_t i = 0; i < call.num_bands; ++i) {
        tiled.first_tile[i] = tiled.num_tiles;
        tiled.num_tiles += (call.bands[i].weight.rows + 15) / 16;
    }
    return tiled;
}

int64_t row_bytes_of(const MatrixView& weight) {
    return matrix_data_bytes(weight.format, 1, weight.cols);
}

bool are_rows_pieces(const GemmCall& call) {
    if (call.weight().format == WeightFormat::kF32) return false;
    if (row_bytes_of(call.weight()) % 16 != 0) return false;
    return std::all_of(call.bands, call.bands + call.num_bands, [](const GemmBand& band) {
        const MatrixView& w = band.weight;
        const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
        return address(w.data) % 16 == 0 && address(w.scales) % 4 == 0 &&
               matrix_scale_bytes(w.format, w.rows, w.cols) % 4 == 0;
    });
}

Status gemm(const GemmArgs& args, CudaStream stream) {
    constexpr const char* kName = "gemm";
    const auto num_bands = static_cast<int32_t>(args.bands.size());
    K3POD_TRY(require(num_bands >= 1 && num_bands <= kMaxGemmBands, kName, "number of bands",
                      num_bands, "in [1, 8]"));
    GemmCall call;
    call.tokens = args.tokens;
    call.x = args.x;
    call.num_bands = num_bands;
    call.workspace = args.workspace;
    std::copy(args.bands.begin(), args.bands.end(), call.bands);
    K3POD_TRY(check(call, kName));
    return run(call, stream);
}

Status gated_gemm(const GatedGemmArgs& args, CudaStream stream) {
    constexpr const char* kName = "gated_gemm";
    K3POD_TRY(require(args.up.rows == args.gate.rows, kName, "rows of up", args.up.rows,
                      "those of gate"));
    K3POD_TRY(
        require(args.beta > 0 && args.linear_beta > 0, kName, "SiTU's smaller beta", 0, "above 0"));
    GemmCall call;
    call.tokens = args.tokens;
    call.x = args.x;
    call.num_bands = 2;
    call.is_gated = true;
    call.workspace = args.workspace;
    call.bands[0] = {args.gate, args.y, false};
    call.bands[1] = {args.up, args.y, false};
    call.beta = args.beta;
    call.linear_beta = args.linear_beta;
    K3POD_TRY(check(call, kName));
    return run(call, stream);
}

int64_t gemm_workspace_bytes(std::span<const GemmBand> bands, int32_t max_tokens) {
    int64_t bytes = 0;
    for (const GemmBand& band : bands) {
        bytes = std::max(bytes, large_gemm_workspace_bytes(band.weight, false, max_tokens));
    }
    return bytes;
}

int64_t gated_gemm_workspace_bytes(const MatrixView& gate, int32_t max_tokens) {
    return large_gemm_workspace_bytes(gate, true, max_tokens);
}

}  // namespace k3pod::kernels
