#pragma once
// Lines of a check by their name.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "k3pod/fabric/check.h"
#include "recorded_system.h"

namespace k3pod::testing {

// An empty line, and a failed test, where there is none of that name.
inline CheckLine line_of(const std::vector<CheckLine>& lines, const std::string& check) {
    for (const CheckLine& line : lines) {
        if (line.check == check) return line;
    }
    ADD_FAILURE() << "no line '" << check << "'";
    return {};
}

inline NodeFacts facts_of(const std::string& recording, const NodeNeeds& needs) {
    return gather_facts(RecordedSystem(recording),
                        {.peers = needs.peers,
                         .ucx_version = "1.17.0 (/usr/lib/aarch64-linux-gnu/libucp.so.0)",
                         .wants_gpus = needs.needs_gpu});
}

// What the real pod needs of its first Spark, and of its station.
inline NodeNeeds spark_needs() {
    return {.node = "spark-1",
            .transport = TransportName::kRc,
            .device = "rocep1s0f0:1",
            .port_rate_bits_per_s = 200'000'000'000,
            .locked_bytes = 64 << 20,
            .memory_bytes = 112'000'000'000,
            .needs_gpu = true,
            .gpu_clock_mhz = 2100,
            .peers = {{"spark-2", "10.0.1.2:7000"}}};
}
inline NodeNeeds station_needs() {
    return {.node = "station",
            .transport = TransportName::kRc,
            .device = "mlx5_0:1",
            .port_rate_bits_per_s = 200'000'000'000,
            .locked_bytes = 64 << 20,
            .memory_bytes = 480'000'000'000,
            .needs_gpu = true,
            .gpu_clock_mhz = 0,
            .peers = {{"spark-1", "10.0.1.1:7000"}, {"spark-2", "10.0.1.2:7000"}}};
}

}  // namespace k3pod::testing
