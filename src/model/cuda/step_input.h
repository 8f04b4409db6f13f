#pragma once
// What changes from step to step, as kernels read it: written into pinned memory by the host,
// copied to the GPU at the head of the step.

#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"
#include "k3pod/kernels/step_chunks.h"
#include "model/cuda/step_launch.h"
#include "model/step_rows.h"

namespace k3pod {

class StepInput {
  public:
    StepInput() = default;
    // Up to max_rows rows in max_chunks chunks, with max_pages pages for each sequence.
    static Result<StepInput> create(int32_t max_rows, int32_t max_chunks, int32_t max_pages);

    // Writes the step for a launch of `num_rows` rows in `num_chunks` chunks; those behind the last
    // one are padding. No earlier step may be in flight. kInvalidArgument for a sequence with more
    // pages than there is room for.
    Status write(const StepRows& rows, int32_t num_rows, int32_t num_chunks);

    // Queues the copy to the GPU of what write() wrote for that many chunks.
    Status upload(int32_t num_chunks, CudaStream stream) const;

    // Where kernels find it.
    kernels::StepChunks chunks(int32_t num_chunks, int32_t max_chunk_rows) const;
    const int32_t* rows_used() const { return device_.as<int32_t>(); }
    const int32_t* ids() const { return device_.as<int32_t>() + ids_; }

  private:
    int64_t num_words(int32_t num_chunks) const { return table_ + num_chunks * max_pages_; }

    int64_t max_pages_ = 0;
    // Offsets in words of 32 bits; rows_used is at 0.
    int64_t ids_ = 0, first_row_ = 0, num_rows_ = 0, positions_ = 0, slots_ = 0, table_ = 0;
    PinnedBuffer host_;
    DeviceBuffer device_;
};

}  // namespace k3pod
