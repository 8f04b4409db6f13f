#pragma once
// Who holds an expert: the placement as the dispatch needs it.

#include <cstdint>
#include <span>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"
#include "k3pod/wire/frame.h"

namespace k3pod::exchange {

class HolderTable {
  public:
    HolderTable() = default;
    // kInvalidArgument when the placement does not fit the limits, or an expert has no holder.
    static Result<HolderTable> build(const Placement& placement, const wire::FrameLimits& limits);

    bool has_layer(int32_t layer) const {
        return layer >= first_layer_ && layer < first_layer_ + num_layers_;
    }
    // Holders of an expert, ascending, each once: a holder of two slices gets one entry and adds
    // both. The layer is one of the table, the expert below num_experts.
    std::span<const uint16_t> of(int32_t layer, int32_t expert) const {
        const size_t i =
            static_cast<size_t>(layer - first_layer_) * num_experts_ + static_cast<size_t>(expert);
        return std::span(holders_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
    }
    // Whether the holder has any shard.
    bool has_shards(size_t holder) const { return has_shards_[holder]; }

  private:
    int32_t first_layer_ = 0;
    int32_t num_layers_ = 0;
    size_t num_experts_ = 0;
    std::vector<uint32_t> begin_;  // [layers * experts + 1], into holders_
    std::vector<uint16_t> holders_;
    std::vector<bool> has_shards_;  // [holders]
};

}  // namespace k3pod::exchange
