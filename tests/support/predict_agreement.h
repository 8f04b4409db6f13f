#pragma once
// What predict says beside what a pod does: the demo model on two servers that are throttled and
// whose replies come late, whole experts and slices. The constants are measured in the same run.
//
// Throttles and delays sleep and are long beside what a busy machine adds, all cases take turns,
// and every figure is the undisturbed one of several rounds: what else runs can only make them
// longer.

#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/config/predict_constants.h"

namespace k3pod::testing {

struct AgreementCase {
    std::string mode;                        // "whole" or "sliced"
    double delay_s = 0;                      // that the fault decorator adds to each exchange
    double predicted_s = 0, measured_s = 0;  // a decode step
};

struct Agreement {
    std::vector<AgreementCase> cases;
    PredictConstants constants;  // as measured, without the delays
};

// Takes `rounds` times four seconds.
Result<Agreement> measure_agreement(int rounds);

}  // namespace k3pod::testing
