#include "pick_counter.h"

namespace k3pod {

PickCounter::PickCounter(ExpertPort& experts, const Placement& placement, int32_t max_rows,
                         int32_t top_k)
    : experts_(experts),
      trace_{.first_layer = placement.first_layer,
             .num_layers = placement.num_layers,
             .num_experts = placement.num_experts,
             .tokens = 0,
             .picks = std::vector<int64_t>(placement.slices.size(), 0)} {
    staged_.reserve(static_cast<size_t>(int64_t{placement.num_layers} * max_rows * top_k));
}

Status PickCounter::dispatch(const RoutedRows& rows) {
    stage(rows);
    return experts_.dispatch(rows);
}

PickTrace PickCounter::trace() const {
    const std::lock_guard lock(mutex_);
    return trace_;
}

void PickCounter::stage(const RoutedRows& rows) {
    const bool is_first_layer = rows.layer == trace_.first_layer;
    if (is_first_layer || rows.step != staged_step_) staged_.clear();  // the last step failed
    staged_step_ = rows.step;
    const auto base = static_cast<uint32_t>((rows.layer - trace_.first_layer) * trace_.num_experts);
    for (const uint16_t expert : rows.experts) staged_.push_back(base + expert);
    const bool is_last_layer = rows.layer + 1 == trace_.first_layer + trace_.num_layers;
    if (is_last_layer) count_staged(rows.rows);
}

void PickCounter::count_staged(int32_t rows) {
    const std::lock_guard lock(mutex_);
    for (const uint32_t place : staged_) ++trace_.picks[place];
    trace_.tokens += rows;
    staged_.clear();
}

}  // namespace k3pod
