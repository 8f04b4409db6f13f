#pragma once
// The shortest pod file that is right, for tests that add to it.

#include <string>

#include "k3pod/config/pod_config.h"

namespace k3pod {

inline constexpr const char* kMinimal = R"([pod]
model = "../models/k3-tiny"
[[expert]]
name = "spark-1"
control = "127.0.0.1:7001"
expert_budget = "16 MiB"
)";

inline Result<PodConfig> parse(const std::string& text) {
    return parse_pod_config(text, "/etc/k3pod/pod.toml");
}

}  // namespace k3pod
