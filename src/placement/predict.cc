#include "k3pod/placement/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "check_predict.h"
#include "step_model.h"

namespace k3pod {
namespace {

struct Blame {
    std::string who;
    double share = 0;  // of the layers in which it was last
};

// Holders of one kind share the blame: which of eight equal servers is last is chance.
std::string describe_bound(const PredictedStep& step) {
    Blame station{"the station's own work", step.station_last_share};
    Blame host{"the station's host memory"};
    Blame servers{"the expert servers"};
    for (const PredictedHolder& holder : step.holders) {
        switch (holder.kind) {
            case HolderKind::kStation:
                break;
            case HolderKind::kStationHost:
                host.share += holder.last_share;
                break;
            case HolderKind::kServer:
                servers.share += holder.last_share;
                break;
        }
    }
    const Blame& worst = std::max({station, host, servers},
                                  [](const Blame& a, const Blame& b) { return a.share < b.share; });
    if (step.wait_s == 0) return "the station's own work; it never waits";
    return fmt::format("{}, last in {:.0f} % of the layers; the station waits {:.0f} % of a step",
                       worst.who, 100 * worst.share, 100 * step.wait_s / step.total_s);
}

}  // namespace

Result<Prediction> predict(const PredictInput& input, const Workload& workload) {
    K3POD_TRY(check_predict(input, workload));
    StepModel model(input);
    Prediction prediction;
    prediction.workload = workload;
    const double tokens = workload.sequences * workload.tokens_per_step();
    const StepRows rows = decode_rows(workload);
    prediction.step = model.overlapped(rows);
    prediction.tokens_per_s = tokens / prediction.step.total_s;
    prediction.bound = describe_bound(prediction.step);
    if (workload.sequences >= 2) {
        StepRows half = rows;
        half.sequences = (workload.sequences + 1) / 2;
        prediction.alternating_s = model.alternating_s(half);
        prediction.alternating_tokens_per_s = tokens / prediction.alternating_s;
    }
    prediction.prefill = model.overlapped(prefill_rows(workload));
    prediction.prefill_tokens_per_s = workload.chunk_tokens / prediction.prefill.total_s;
    return prediction;
}

double tensor_parallel_bound(double bytes_per_token, int32_t num_nodes,
                             double bandwidth_bytes_per_s) {
    return num_nodes * bandwidth_bytes_per_s / bytes_per_token;
}

}  // namespace k3pod
