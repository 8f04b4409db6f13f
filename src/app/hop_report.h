#pragma once
// What k3pod fabric hop measured, case by case.

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "k3pod/exchange/probe.h"
#include "percentiles.h"

namespace k3pod {

struct HopCase {
    int32_t fan_out = 0, rows = 0;
    bool has_work = false, has_bulk = false;
    Percentiles total_us;
    // Means over the middle fifth of the exchanges, by their whole time: what a usual one is made
    // of.
    ExchangeParts usual;

    // The parts of the usual exchange over its whole: 1 when nothing is left out.
    double sum_of_parts() const;
};

// Of at least five exchanges.
HopCase summarise(std::vector<ExchangeParts> exchanges);

std::string hop_text(std::span<const HopCase> cases);
nlohmann::ordered_json hop_json(std::span<const HopCase> cases);

}  // namespace k3pod
