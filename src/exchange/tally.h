#pragma once
// A counter for the token path: plain additions under the drive mutex, carried over to the registry
// at the keeper's pace.

#include <cstdint>

#include "k3pod/metrics/metrics.h"

namespace k3pod::exchange {

class Tally {
  public:
    explicit Tally(Counter& counter) : counter_(&counter) {}
    void add(int64_t n = 1) { unpublished_ += n; }
    void publish() {
        if (unpublished_ == 0) return;
        counter_->add(static_cast<double>(unpublished_));
        unpublished_ = 0;
    }

  private:
    Counter* counter_;
    int64_t unpublished_ = 0;
};

}  // namespace k3pod::exchange
