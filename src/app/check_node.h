#pragma once
// How a node of the pod looks at its own machine.

#include <cstdint>
#include <string>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"

namespace k3pod {

enum class GpuLoad : uint8_t {
    kNone,  // the GPU serves; what it does now is the load
    kBusy,  // make it work for a second, as its clock at rest says nothing
};

// `node` and `taken_bytes` as in needs_of (fabric/check.h).
std::vector<CheckLine> check_this_machine(const PodConfig& pod, const std::string& node,
                                          int64_t taken_bytes, GpuLoad load);

}  // namespace k3pod
