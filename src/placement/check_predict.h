#pragma once

#include "k3pod/placement/predict.h"

namespace k3pod {

// kInvalidArgument names what is out of range or does not belong together.
Status check_predict(const PredictInput& input, const Workload& workload);

}  // namespace k3pod
