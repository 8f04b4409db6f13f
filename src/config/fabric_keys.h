#pragma once
// [[switch]], [[cable]] and [power] of a pod file.

#include "k3pod/config/fabric_config.h"
#include "keys.h"

namespace k3pod {

const std::vector<Key<SwitchConfig>>& switch_keys();
const std::vector<Key<CableConfig>>& cable_keys();
const std::vector<Key<PowerConfig>>& power_keys();

// Names that are used twice, cables to nowhere and power figures without a line. kInvalidArgument
// says what and what to do; the caller adds the file. `nodes` are the station and the expert
// servers.
Status check_fabric_config(const FabricConfig& fabric, const std::vector<std::string>& nodes);

}  // namespace k3pod
