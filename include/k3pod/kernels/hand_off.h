#pragma once
// The GPU's end of the hand-off (device/hand_off.h): kernels of a step's graph that pass a layer's
// rows to the host and sum what comes back.
//
//   hand_off_begin                       first in the graph
//   hand_off_dispatch, ..., hand_off_combine      for each MoE layer, in the order of the layers
//
// Everything that changes from step to step is read from memory, so that one graph replays. After
// an exchange was given up (abort word or clock limit) the rest of the step's dispatches publish
// nothing and its combines end at once with zeros; HandOff::end_step() tells.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/device/hand_off.h"

namespace k3pod::kernels {

// Device memory that the kernels keep between launches: this many bytes, aligned to 128, zero when
// the first step begins.
int64_t hand_off_state_bytes();

struct HandOffLink {
    HandOffShape shape;
    std::byte* shared = nullptr;  // HandOff::memory() as the device addresses it (pinned)
    std::byte* state = nullptr;   // hand_off_state_bytes(), device
};

// Takes over the step's numbers that HandOff::begin_step() wrote.
Status hand_off_begin(const HandOffLink& link, CudaStream stream);

struct HandOffDispatchArgs {
    HandOffLink link;
    int32_t exchange_idx = 0;  // 0-based within the step
    int32_t rows = 0;          // of the bucket
    // Rows in use, at least 1, device; the others are padding and are not published. Null: all.
    const int32_t* num_rows = nullptr;
    // Exactly one of the two: [rows, L], device. fp32 is rounded to bf16.
    const float* latents_f32 = nullptr;
    const Bf16* latents_bf16 = nullptr;
    const uint16_t* experts = nullptr;  // [rows, K], device
    const float* weights = nullptr;     // [rows, K], device
};
Status hand_off_dispatch(const HandOffDispatchArgs& args, CudaStream stream);

struct HandOffCombineArgs {
    HandOffLink link;
    int32_t exchange_idx = 0;
    int32_t rows = 0;
    const int32_t* num_rows = nullptr;
    // [rows, L], device: what the station's own tier on this GPU has for the rows, added in front
    // of the parts. Null: none.
    const float* local = nullptr;
    float* out = nullptr;  // [rows, L], device, overwritten; padding becomes zero
};
// Waits for every part, then out = local + part 0 + part 1 + ..., fp32, in this order. Whatever the
// rows, it waits on few SMs, so that experts on the same GPU can work meanwhile.
Status hand_off_combine(const HandOffCombineArgs& args, CudaStream stream);

}  // namespace k3pod::kernels
