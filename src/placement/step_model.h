#pragma once
// The time of one step: the station's parts by formula, the experts' by drawing picks.

#include <cstdint>
#include <vector>

#include "k3pod/placement/predict.h"
#include "layer_loads.h"

namespace k3pod {

// The rows of a step: `sequences` texts, `length` rows of each.
struct StepRows {
    int32_t sequences = 1;
    int32_t length = 1;
    int64_t context = 0;
    bool is_prefill = false;  // rows attend to the cache one by one, only the last needs the head
    bool has_drafts = false;
    int32_t rows() const { return sequences * length; }
};

StepRows decode_rows(const Workload& workload);
// A chunk in the middle of a prompt that grows to the whole context.
StepRows prefill_rows(const Workload& workload);

class StepModel {
  public:
    // Borrows what the input refers to.
    explicit StepModel(const PredictInput& input);

    // A step with the shared experts under the exchange.
    PredictedStep overlapped(const StepRows& rows);
    // A step of two halves in turn: while the experts work on one, the station works on the other.
    // `half` are the rows of one half.
    double alternating_s(const StepRows& half);

  private:
    // One holder in one layer.
    struct HolderNow {
        double bytes = 0;
        double busy_s = 0;
        double exchange_s = 0;
        double end_s() const { return busy_s + exchange_s; }
    };
    // One layer of one draw.
    struct LayerNow {
        double local_s = 0;                // kStation's experts
        double link_s = 0;                 // all rows over the station's link
        std::vector<HolderNow> holders{};  // [holders]
    };
    // One layer's parts on the station, and once a step.
    struct StationTime {
        double attention_s = 0, front_s = 0, shared_s = 0, tail_s = 0, dense_s = 0, head_s = 0,
               draft_s = 0;          // of all layers together
        double per_moe_layer_s = 0;  // attention, front, shared and tail of a mean MoE layer
        double outside_s = 0;        // of layers without experts, and once a step
    };

    StationTime station_time(const StepRows& rows) const;
    int32_t num_draws(int32_t rows) const;
    void draw_layer(int32_t layer_idx, int32_t draw, const StepRows& rows);
    void blame(double last_s, PredictedStep& step) const;
    void count_layer(double shared_s, PredictedStep& step);

    const PredictInput input_;
    LayerLoads loads_;
    LayerNow now_;
};

}  // namespace k3pod
