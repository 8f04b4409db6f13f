#pragma once
// A prediction for people, for programs and as a picture.

#include <string>
#include <vector>

#include "predict_inputs.h"

namespace k3pod {

struct PredictReport {
    const PredictSetup& setup;
    Prediction prediction;
    std::vector<Purchase> purchases;
    // Of the pod's expert servers as one tensor-parallel group; 0: there are none.
    double tensor_parallel_tokens_per_s = 0;
};

std::string predict_text(const PredictReport& report);
std::string predict_json(const PredictReport& report);
// Bars of one step: what the station does, what each holder does meanwhile, and what more of each
// machine would bring.
std::string predict_svg(const PredictReport& report);

}  // namespace k3pod
