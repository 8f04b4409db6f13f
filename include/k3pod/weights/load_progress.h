#pragma once
// How far a load has come, for whoever shows it.

#include <chrono>
#include <cstdint>
#include <functional>

namespace k3pod {

// Called with bytes done and total, at most ten times a second, on the loading thread.
using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Keeps that promise for a loader, which adds what it has read; the last byte is always reported.
class ProgressMeter {
  public:
    // Borrows `report`, which may be null.
    ProgressMeter(const LoadProgress& report, int64_t total_bytes)
        : report_(report), total_bytes_(total_bytes) {}

    void add(int64_t bytes) {
        done_bytes_ += bytes;
        if (!report_) return;
        const auto now = std::chrono::steady_clock::now();
        const bool is_due = now - last_ >= std::chrono::milliseconds(100);
        if (!is_due && done_bytes_ < total_bytes_) return;
        last_ = now;
        report_(done_bytes_, total_bytes_);
    }

  private:
    const LoadProgress& report_;
    int64_t total_bytes_;
    int64_t done_bytes_ = 0;
    std::chrono::steady_clock::time_point last_;
};

}  // namespace k3pod
