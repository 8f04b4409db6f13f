#pragma once
// How one frame of an expert server gets onto the GPU and its sums back, inside one graph that
// replays for every frame:
//
//   expert_frame_in, grouped_experts (kernels/experts.h), expert_frame_out
//
// The host writes a ticket and launches; the last kernel raises the ticket's number where the host
// polls, which costs less than waiting for the stream.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/wire/frame.h"

namespace k3pod::kernels {

// What one frame is. In pinned memory; written by the host before each launch.
struct ExpertTicket {
    const Bf16* latents = nullptr;             // [rows, L], pinned, aligned to 4
    const wire::WireEntry* entries = nullptr;  // pinned
    float* out = nullptr;                      // [rows, L], pinned, aligned to 16
    int32_t layer = 0;                         // an index among MoE layers
    int32_t rows = 0;
    int32_t num_entries = 0;
    uint64_t number = 0;  // grows by 1 for each frame
};

struct ExpertFrameArgs {
    int32_t max_rows = 0;                  // R at most
    int32_t max_entries = 0;               // at most
    int32_t latent = 0;                    // L, a multiple of 8
    const ExpertTicket* ticket = nullptr;  // pinned
    uint64_t* done = nullptr;              // pinned: number of the last frame that is finished
    // Device. The ticket of the frame in work, whose numbers grouped_experts reads; then the frame.
    ExpertTicket* frame = nullptr;
    Bf16* latents = nullptr;             // [R, L], aligned to 16
    wire::WireEntry* entries = nullptr;  // [max_entries]
    float* out = nullptr;                // [R, L], aligned to 16
    uint32_t* arrivals = nullptr;        // zeroed once, then left alone
};

// Copies the ticket's frame into device memory. Rows and entries beyond the two limits are left
// out.
Status expert_frame_in(const ExpertFrameArgs& args, CudaStream stream);

// Copies the sums to the ticket's out and raises `done`.
Status expert_frame_out(const ExpertFrameArgs& args, CudaStream stream);

}  // namespace k3pod::kernels
