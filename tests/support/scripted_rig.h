#pragma once
// What the rigs of both ends of the exchange have in common: the other end is played over a
// scripted wire, and counters are waited for.

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "k3pod/exchange/exchange.h"
#include "tests/support/fake_experts.h"
#include "tests/support/metric_values.h"
#include "tests/support/scripted_transport.h"

namespace k3pod::testing {

class ScriptedRig {
  public:
    static constexpr std::chrono::seconds kPatience{10};

    ScriptedRig() { options.limits = kFakeLimits; }

    // Waits until the counter, published at the keeper's pace, has this value.
    ::testing::AssertionResult has_metric(const std::string& name, const std::string& label,
                                          double value) {
        const TimePoint end = clock.now() + kPatience;
        std::optional<double> found;
        while (clock.now() < end) {
            found = metric_value(metrics, name, {label});
            if (found == value) return ::testing::AssertionSuccess();
            std::this_thread::yield();
        }
        return ::testing::AssertionFailure()
               << name << "{" << label << "} is " << found.value_or(-1) << ", expected " << value;
    }

    ExchangeOptions options;
    SteadyClock clock;
    MetricsRegistry metrics;
    ScriptedWire wire;
};

}  // namespace k3pod::testing
