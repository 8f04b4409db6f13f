#pragma once
// The least that a GPU and a host thread can do to hand something over and get an answer: the
// yardstick of the hand-off.

#include <cstddef>
#include <cstdint>

#include "k3pod/base/status.h"
#include "k3pod/device/cuda.h"

namespace k3pod::bench {

struct BareFlagArgs {
    // Pinned. The kernel raises `request` to the number of the exchange and waits until the host
    // has raised `reply` to it.
    uint64_t* request = nullptr;
    const uint64_t* reply = nullptr;
    // 0, or bytes (a multiple of 16, at most 16 KiB) that go from `from` to `out` before the
    // request and from `in` to `to` behind the reply. out and in: pinned; from and to: device.
    int32_t row_bytes = 0;
    const std::byte* from = nullptr;
    std::byte* out = nullptr;
    const std::byte* in = nullptr;
    std::byte* to = nullptr;
    uint64_t* number = nullptr;  // device, 0 at first: exchanges so far
};

// One kernel. Waits at most two seconds; then the numbers no longer fit and the host notices.
Status bare_flag_exchange(const BareFlagArgs& args, CudaStream stream);

}  // namespace k3pod::bench
