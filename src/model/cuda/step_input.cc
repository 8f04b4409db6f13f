#include "model/cuda/step_input.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {
namespace {

constexpr int64_t kWordBytes = sizeof(int32_t);
constexpr int32_t kNoToken = -1;  // embeds to zeros

}  // namespace

Result<StepInput> StepInput::create(int32_t max_rows, int32_t max_chunks, int32_t max_pages) {
    StepInput input;
    int64_t words = 4;
    const auto place = [&](int64_t count) {
        const int64_t begin = words;
        words += (count + 3) / 4 * 4;
        return begin;
    };
    input.max_pages_ = max_pages;
    input.ids_ = place(max_rows);
    for (int64_t* column :
         {&input.first_row_, &input.num_rows_, &input.positions_, &input.slots_}) {
        *column = place(max_chunks);
    }
    input.table_ = words;  // last, so that a step with few chunks copies few bytes
    const int64_t bytes = input.num_words(max_chunks) * kWordBytes;
    K3POD_ASSIGN(input.host_, PinnedBuffer::create(bytes));
    K3POD_ASSIGN(input.device_, DeviceBuffer::create(bytes));
    return input;
}

Status StepInput::write(const StepRows& rows, int32_t num_rows, int32_t num_chunks) {
    int32_t* const words = host_.as<int32_t>();
    words[0] = rows.count();
    std::fill_n(words + ids_, num_rows, kNoToken);
    std::fill_n(words + num_rows_, num_chunks, 0);
    for (size_t i = 0; i < rows.chunks().size(); ++i) {
        const auto& [chunk, range] = rows.chunks()[i];
        if (std::ssize(chunk->state->pages) > max_pages_) {
            return invalid_argument(fmt::format(
                "chunk {} of the step: its sequence owns {} pages, the model was made for {}", i,
                chunk->state->pages.size(), max_pages_));
        }
        words[first_row_ + static_cast<int64_t>(i)] = range.begin;
        words[num_rows_ + static_cast<int64_t>(i)] = range.count;
        words[positions_ + static_cast<int64_t>(i)] = chunk->position;
        words[slots_ + static_cast<int64_t>(i)] = chunk->state->slot;
        std::ranges::copy(chunk->ids, words + ids_ + range.begin);
        std::ranges::copy(chunk->state->pages,
                          words + table_ + static_cast<int64_t>(i) * max_pages_);
    }
    return Status::ok();
}

Status StepInput::upload(int32_t num_chunks, CudaStream stream) const {
    return copy_to_device(device_.data(), host_.data(), num_words(num_chunks) * kWordBytes, stream);
}

kernels::StepChunks StepInput::chunks(int32_t num_chunks, int32_t max_chunk_rows) const {
    const int32_t* const words = device_.as<int32_t>();
    return {.num_chunks = num_chunks,
            .max_rows = max_chunk_rows,
            .first_row = words + first_row_,
            .num_rows = words + num_rows_,
            .positions = words + positions_,
            .slots = words + slots_,
            .page_table = words + table_,
            .page_stride = static_cast<int32_t>(max_pages_)};
}

}  // namespace k3pod
