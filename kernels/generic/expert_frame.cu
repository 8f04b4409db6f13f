// Frames of an expert server between pinned memory and the device.

#include "k3pod/kernels/expert_frame.h"

#include <algorithm>
#include <string>

#include "common/launch.cuh"

namespace k3pod::kernels {
namespace {

constexpr int32_t kThreads = 256;
// Enough to keep the bus busy; more would only read the ticket more often.
constexpr int64_t kMaxBlocks = 64;

// 16 bytes by one thread: 8 latents, 4 sums or 2 entries.
int64_t num_blocks(int64_t bytes) {
    const int64_t per_block = int64_t{kThreads} * 16;
    return std::clamp<int64_t>((bytes + per_block - 1) / per_block, 1, kMaxBlocks);
}

__device__ int64_t thread_of_grid() {
    return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ int64_t threads_of_grid() {
    return int64_t{gridDim.x} * blockDim.x;
}

// The host has written before the launch, so plain loads see it; .cv because the same addresses
// held another frame before.
template <class Word>
__device__ void copy_from_host(const void* from, void* to, int64_t bytes) {
    const auto* source = static_cast<const Word*>(from);
    auto* target = static_cast<Word*>(to);
    const auto words = bytes / static_cast<int64_t>(sizeof(Word));
    for (int64_t i = thread_of_grid(); i < words; i += threads_of_grid()) {
        target[i] = __ldcv(source + i);
    }
}

// Frames begin wherever a message put them; rows stay aligned to 4 bytes (wire/frame.h).
__device__ void copy_any_from_host(const void* from, void* to, int64_t bytes) {
    if (reinterpret_cast<uintptr_t>(from) % sizeof(uint4) == 0 && bytes % sizeof(uint4) == 0) {
        copy_from_host<uint4>(from, to, bytes);
    } else {
        copy_from_host<uint32_t>(from, to, bytes);
    }
}

__device__ ExpertTicket read_from_host(const ExpertTicket* ticket) {
    constexpr int kWords = sizeof(ExpertTicket) / 8;
    static_assert(sizeof(ExpertTicket) % 8 == 0);
    unsigned long long copy[kWords];
    const auto* words = reinterpret_cast<const unsigned long long*>(ticket);
#pragma unroll
    for (int i = 0; i < kWords; ++i) copy[i] = __ldcv(words + i);
    ExpertTicket read;
    memcpy(&read, copy, sizeof(read));
    return read;
}

__global__ void __launch_bounds__(kThreads) frame_in_kernel(ExpertFrameArgs args) {
    ExpertTicket ticket = read_from_host(args.ticket);
    ticket.rows = min(ticket.rows, args.max_rows);
    ticket.num_entries = min(ticket.num_entries, args.max_entries);
    if (thread_of_grid() == 0) *args.frame = ticket;
    copy_any_from_host(ticket.latents, args.latents,
                       int64_t{ticket.rows} * args.latent * int64_t{sizeof(Bf16)});
    copy_any_from_host(ticket.entries, args.entries,
                       ticket.num_entries * int64_t{sizeof(wire::WireEntry)});
}

__global__ void __launch_bounds__(kThreads) frame_out_kernel(ExpertFrameArgs args) {
    auto* to = reinterpret_cast<float4*>(args.frame->out);
    const auto* from = reinterpret_cast<const float4*>(args.out);
    const int64_t words = int64_t{args.frame->rows} * args.latent / 4;
    for (int64_t i = thread_of_grid(); i < words; i += threads_of_grid()) to[i] = from[i];
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    if (atomicAdd(args.arrivals, 1u) != gridDim.x - 1) return;
    *args.arrivals = 0;
    __threadfence_system();
    *const_cast<volatile uint64_t*>(args.done) = args.frame->number;
}

Status check(const char* kernel, const ExpertFrameArgs& args) {
    const auto refuse = [&](const char* what, int64_t value, const char* wanted) {
        return invalid_argument(std::string(kernel) + ": " + what + " is " + std::to_string(value) +
                                "; it must be " + wanted);
    };
    if (args.max_rows < 1) return refuse("max_rows", args.max_rows, "at least 1");
    if (args.max_entries < 1) return refuse("max_entries", args.max_entries, "at least 1");
    if (args.latent < 8 || args.latent % 8 != 0) {
        return refuse("latent", args.latent, "a multiple of 8");
    }
    return Status::ok();
}

LaunchShape shape_for(int64_t bytes) {
    return {.grid = dim3(static_cast<unsigned>(num_blocks(bytes))), .block = dim3(kThreads)};
}

}  // namespace

Status expert_frame_in(const ExpertFrameArgs& args, CudaStream stream) {
    K3POD_TRY(check("expert_frame_in", args));
    const int64_t bytes = wire::request_payload_bytes(args.latent, args.max_rows, args.max_entries);
    return launch("expert_frame_in", frame_in_kernel, shape_for(bytes), stream, args);
}

Status expert_frame_out(const ExpertFrameArgs& args, CudaStream stream) {
    K3POD_TRY(check("expert_frame_out", args));
    const int64_t bytes = wire::reply_payload_bytes(args.latent, args.max_rows, true);
    return launch("expert_frame_out", frame_out_kernel, shape_for(bytes), stream, args);
}

}  // namespace k3pod::kernels
