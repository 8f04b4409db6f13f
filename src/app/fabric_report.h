#pragma once
// What the pod file says of cables and power, checked and told.

#include <nlohmann/json.hpp>
#include <string>

#include "k3pod/config/pod_config.h"
#include "k3pod/placement/fabric.h"

namespace k3pod {

FabricReport check_pod_fabric(const PodConfig& pod);

// A line for each finding, problems marked; empty when the pod file says nothing of cables and
// power.
std::string fabric_text(const FabricReport& fabric);
nlohmann::ordered_json fabric_json(const FabricReport& fabric);

}  // namespace k3pod
