#pragma once
// One figure out of a registry's text, as a scraper sees it.

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "k3pod/metrics/metrics.h"

namespace k3pod::testing {

// The sum over the samples called `name` whose line has all of `labels`, each written as in the
// text, e.g. finished_reason="stop". Nothing when there is no such sample.
inline std::optional<double> metric_value(const MetricsRegistry& registry, const std::string& name,
                                          const std::vector<std::string>& labels = {}) {
    std::optional<double> sum;
    std::istringstream text(registry.expose());
    for (std::string line; std::getline(text, line);) {
        if (line.rfind(name + "{", 0) != 0 && line.rfind(name + " ", 0) != 0) continue;
        bool has_all = true;
        for (const std::string& label : labels) has_all &= line.find(label) != std::string::npos;
        if (has_all) sum = sum.value_or(0) + std::stod(line.substr(line.rfind(' ') + 1));
    }
    return sum;
}

}  // namespace k3pod::testing
