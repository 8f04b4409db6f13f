#pragma once
// Counts what the router picks, on its way to the experts: the trace that `k3pod plan` wants.

#include <cstdint>
#include <mutex>
#include <vector>

#include "k3pod/model/expert_port.h"
#include "k3pod/placement/placement.h"
#include "k3pod/placement/popularity.h"

namespace k3pod {

// An ExpertPort that hands everything on. A step counts once its last layer is dispatched, so that
// a trace has the same tokens in every layer whenever it is read.
class PickCounter final : public ExpertPort {
  public:
    // Borrows `experts`. Everything is allocated here, for steps of max_rows rows with top_k picks.
    PickCounter(ExpertPort& experts, const Placement& placement, int32_t max_rows, int32_t top_k);

    Status dispatch(const RoutedRows& rows) override;
    Status combine(std::span<float> out) override { return experts_.combine(out); }
    std::string holding() const override { return experts_.holding(); }
    void stop_holding(const Status& why) override { experts_.stop_holding(why); }

    // Since the start. Any thread.
    PickTrace trace() const;

  private:
    void stage(const RoutedRows& rows);
    void count_staged(int32_t rows);

    ExpertPort& experts_;
    // Of the step under way, as places in PickTrace::picks; step thread only.
    std::vector<uint32_t> staged_;
    uint64_t staged_step_ = 0;

    mutable std::mutex mutex_;
    PickTrace trace_;
};

}  // namespace k3pod
