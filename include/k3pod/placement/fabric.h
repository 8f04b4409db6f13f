#pragma once
// Whether the cables and the power line of a pod carry what the pod file puts on them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "k3pod/config/fabric_config.h"

namespace k3pod {

struct Finding {
    bool is_problem = false;
    std::string text;  // one sentence
};

struct SwitchUse {
    std::string name;
    int32_t cages = 0;
    int32_t trunk_cages = 0;
    int32_t station_cages = 0;
    int32_t num_servers = 0;  // attached
    int32_t room = 0;         // expert servers that the other cages have ports for
};

struct FabricReport {
    std::vector<SwitchUse> switches;  // in the order of the pod file
    int64_t station_bits_per_s = 0;   // all legs together
    std::vector<Finding> findings;    // empty when the pod file says nothing of cables and power
    bool has_problems() const;
};

// `servers` are the names of the pod's expert servers. Names in `fabric` are known and its numbers
// in range, as the pod file is read.
FabricReport check_fabric(const FabricConfig& fabric, std::span<const std::string> servers);

}  // namespace k3pod
