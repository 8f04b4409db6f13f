// k3pod predict: tokens per second of a pod with a placement, from constants.

#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"
#include "output_files.h"
#include "predict_report.h"

namespace k3pod {
namespace {

Workload workload_of(const PredictOptions& options, const PodConfig& pod) {
    Workload workload;
    workload.sequences = options.batch;
    workload.drafts = options.drafts;
    workload.acceptance = options.acceptance;
    workload.context = options.context;
    workload.chunk_tokens = options.chunk != 0 ? options.chunk : pod.station.max_batch_tokens;
    return workload;
}

// Expert and other weights of one token, read by the servers alone.
double bound_of_servers(const PredictSetup& setup) {
    const Popularity& popularity = setup.popularity;
    const double expert_bytes = double{1} * popularity.num_layers * popularity.top_k *
                                setup.placement.width *
                                static_cast<double>(setup.model.bytes_per_column);
    double bandwidth = 0;
    int32_t num_servers = 0;
    for (const PredictHolder& holder : setup.holders) {
        if (holder.kind != HolderKind::kServer) continue;
        bandwidth += holder.bandwidth;
        ++num_servers;
    }
    if (num_servers == 0) return 0;
    return tensor_parallel_bound(setup.station_bytes + expert_bytes, num_servers,
                                 bandwidth / num_servers);
}

Status check_files(const PodConfig& pod, const PredictOptions& options) {
    std::vector<NamedFile> inputs = {{"--pod", pod.file.string()},
                                     {"--placement", options.placement},
                                     {"--config", options.config},
                                     {"--constants", options.constants}};
    for (const std::string& trace : options.traces) inputs.push_back({"a trace", trace});
    for (const auto& trace : pod.placement.traces) inputs.push_back({"a trace", trace.string()});
    return check_outputs({{"--svg", options.svg}}, inputs);
}

}  // namespace

Status run_predict(const PodConfig& pod, const PredictOptions& options) {
    K3POD_TRY(check_files(pod, options));
    K3POD_ASSIGN(const PredictSetup setup, read_predict_setup(pod, options));
    const Workload workload = workload_of(options, pod);
    K3POD_ASSIGN(Prediction prediction, predict(setup.input(), workload));
    K3POD_ASSIGN(std::vector<Purchase> purchases, predict_purchases(setup.input(), workload));
    const PredictReport report{setup, std::move(prediction), std::move(purchases),
                               bound_of_servers(setup)};
    if (!options.svg.empty()) K3POD_TRY(write_output(options.svg, predict_svg(report)));
    const std::string text = options.json ? predict_json(report) : predict_text(report);
    std::fputs(text.c_str(), stdout);
    return Status::ok();
}

}  // namespace k3pod
