#include "exchange/message.h"

#include <fmt/format.h>

#include <limits>

namespace k3pod::exchange {
namespace {

Status check_range(const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return Status::ok();
    return invalid_argument(
        fmt::format("exchange: {} is {}, expected {} to {}", what, value, low, high));
}

}  // namespace

Status check_options(const ExchangeOptions& options) {
    constexpr int64_t kMaxU16 = std::numeric_limits<uint16_t>::max();
    constexpr int64_t kHour = Nanoseconds(std::chrono::hours(1)).count();
    const wire::FrameLimits& limits = options.limits;
    K3POD_TRY(check_range("latent", limits.latent, 2, 1 << 20));
    K3POD_TRY(check_range("num_layers", limits.num_layers, 1, kMaxU16));
    K3POD_TRY(check_range("num_experts", limits.num_experts, 1, kMaxU16 + 1));
    K3POD_TRY(check_range("top_k", limits.top_k, 1, limits.num_experts));
    K3POD_TRY(check_range("max_rows", limits.max_rows, 1, kMaxU16));
    K3POD_TRY(check_range("frame_deadline in ns", options.frame_deadline.count(), 1, kHour));
    K3POD_TRY(
        check_range("heartbeat_interval in ns", options.heartbeat_interval.count(), 1, kHour));
    return check_range("heartbeats_missed", options.heartbeats_missed, 1, 1 << 20);
}

}  // namespace k3pod::exchange
