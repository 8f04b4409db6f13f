#pragma once
// What each holder has to do for one layer of one step: the picks of its rows, drawn and handed to
// the holders of a placement.

#include <cstdint>
#include <vector>

#include "k3pod/placement/placement.h"
#include "pick_sampler.h"

namespace k3pod {

struct HolderLoad {
    int64_t columns = 0;      // of different experts: read once, whoever picked them
    int64_t row_columns = 0;  // each as often as it was picked: computed
    int32_t rows = 0;         // that have a pick here
};

class LayerLoads {
  public:
    // Borrows both.
    LayerLoads(const Placement& placement, const Popularity& popularity);

    // `sequences` texts of `length` rows each; within a text picks are reused. The result is
    // valid until the next draw. [holders]
    const std::vector<HolderLoad>& draw(int32_t layer_idx, int32_t sequences, int32_t length,
                                        double reuse, PickDice& dice);
    // In units of a pick.
    int64_t draw_cost(int32_t rows) const { return rows * sampler_.draw_cost(); }

  private:
    void add_row(int32_t layer_idx, uint32_t row);

    const Placement& placement_;
    PickSampler sampler_;
    std::vector<int32_t> picks_;         // [top_k] of one row
    std::vector<HolderLoad> loads_;      // [holders]
    std::vector<uint32_t> row_seen_;     // [holders]: the last row that has a pick there
    std::vector<uint32_t> expert_seen_;  // [E]: the last draw that read it
    uint32_t row_ = 0;
    uint32_t draw_ = 0;
};

}  // namespace k3pod
