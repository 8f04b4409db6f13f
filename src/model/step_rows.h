#pragma once
// The rows of one step: every chunk's tokens one behind the other. Linears run over all of them at
// once, the state of a sequence only meets the rows of its own chunk.

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/model/model.h"
#include "model/row_buffer.h"

namespace k3pod {

struct ChunkRows {
    const SequenceChunk* chunk = nullptr;
    RowRange rows;

    // The rows whose logits the chunk asks for; may be empty.
    RowRange logits_rows() const;
};

class StepRows {
  public:
    StepRows(int32_t max_rows, int32_t vocab, int32_t num_slots);

    // Lays out the chunks of `step` (borrowed until the next call). kInvalidArgument names the
    // chunk and what is wrong with it: ids, position, pages, a sequence named twice, too many rows.
    Status assign(const ModelStep& step);

    int32_t count() const { return count_; }            // T
    int32_t num_logits() const { return num_logits_; }  // N
    RowRange all() const { return {0, count_}; }
    std::span<const ChunkRows> chunks() const { return chunks_; }

  private:
    Status check(const SequenceChunk& chunk, size_t index);

    int32_t max_rows_;
    int32_t vocab_;
    int32_t count_ = 0;
    int32_t num_logits_ = 0;
    std::vector<ChunkRows> chunks_;  // never grows past the max_rows it reserved
    uint64_t serial_ = 0;            // of the step being laid out
    std::vector<uint64_t> seen_in_;  // per slot: serial of the last step that used it
};

}  // namespace k3pod
