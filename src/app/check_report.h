#pragma once
// What `k3pod check` found, as one table or as JSON.

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/control/control.h"

namespace k3pod {

struct CheckedNode {
    std::string node;
    std::vector<CheckLine> lines;
};

std::string check_text(std::span<const CheckedNode> nodes);
nlohmann::ordered_json check_json(std::span<const CheckedNode> nodes);

// Prints it. Ok unless there is a failure; warnings are for the reader.
Status report_check(std::span<const CheckedNode> nodes, bool json);

}  // namespace k3pod
