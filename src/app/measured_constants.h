#pragma once
// What a measurement changes in the constants of k3pod predict.

#include <optional>

#include "fabric_commands.h"
#include "k3pod/base/status.h"

namespace k3pod {

struct MeasuredExchange {
    std::optional<double> round_trip_s;
    std::optional<double> server_bits_per_s, station_bits_per_s;
    std::string source;  // what measured, for the file
};

// Writes options.out, from options.constants or the built-in ones; nothing without --out.
Status write_measured(const MeasuredExchange& measured, const FabricOptions& options);

}  // namespace k3pod
