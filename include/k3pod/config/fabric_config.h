#pragma once
// How the machines of a pod are cabled and powered, as the pod file has it. All of it may be left
// out; what is given is checked by check_fabric (placement/fabric.h).

#include <cstdint>
#include <string>
#include <vector>

namespace k3pod {

struct SwitchConfig {
    std::string name;             // unique, no node's name
    int32_t cages = 0;            // at least 1
    int32_t ports_per_cage = 1;   // that a cage is broken out into
    int64_t port_bits_per_s = 0;  // of one of them; more than 0
    bool operator==(const SwitchConfig&) const = default;
};

enum class CableKind : uint8_t { kPassiveCopper, kActiveCopper, kOptical };

// One cable, or one tail of a breakout cable. Between two switches it is the trunk and takes a cage
// on each; between the station and a switch it is a leg and takes a cage; an expert server's takes
// one port.
struct CableConfig {
    std::string from, to;  // nodes and switches; one of them at least is a switch
    CableKind kind = CableKind::kPassiveCopper;
    int32_t length_mm = 0;
    bool operator==(const CableConfig&) const = default;
};

struct PowerConfig {
    int32_t line_watts = 0;           // what the line carries continuously; 0: not checked
    int32_t station_watts = 0;        // 0: on another line
    int32_t expert_server_watts = 0;  // of each
    int32_t switch_watts = 0;         // of each
    bool operator==(const PowerConfig&) const = default;
};

struct FabricConfig {
    std::vector<SwitchConfig> switches;
    std::vector<CableConfig> cables;
    PowerConfig power;
    bool operator==(const FabricConfig&) const = default;
};

}  // namespace k3pod
