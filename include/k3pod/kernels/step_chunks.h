#pragma once
// The rows of a step as chunks: consecutive rows of one sequence each, one row in a decode step.

#include <cstdint>

namespace k3pod::kernels {

// Sizes of the bucket, which a graph is captured for, and where to find what changes from step to
// step: every array is in device memory and is read when a kernel runs. Rows outside the chunks are
// padding; kernels neither read them nor write their outputs. A slot is in at most one chunk.
struct StepChunks {
    int32_t num_chunks = 0;               // C
    int32_t max_rows = 0;                 // of one chunk; 1 in a decode step
    const int32_t* first_row = nullptr;   // [C]
    const int32_t* num_rows = nullptr;    // [C], at most max_rows; 0: the chunk is padding
    const int32_t* positions = nullptr;   // [C] position in its sequence of the chunk's first row
    const int32_t* slots = nullptr;       // [C] of KDA state
    const int32_t* page_table = nullptr;  // [C, page_stride]: pages of the sequence, in order
    int32_t page_stride = 0;
};

}  // namespace k3pod::kernels
