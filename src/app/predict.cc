// k3pod predict: tokens per second of a pod with a placement, from constants.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "commands.h"
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

Status write_text_file(const std::string& path, const std::string& text) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (out) return Status::ok();
    return invalid_argument(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace

Status run_predict(const PodConfig& pod, const PredictOptions& options) {
    K3POD_ASSIGN(const PredictSetup setup, read_predict_setup(pod, options));
    const Workload workload = workload_of(options, pod);
    K3POD_ASSIGN(Prediction prediction, predict(setup.input(), workload));
    K3POD_ASSIGN(std::vector<Purchase> purchases, predict_purchases(setup.input(), workload));
    const PredictReport report{setup, std::move(prediction), std::move(purchases),
                               bound_of_servers(setup)};
    if (!options.svg.empty()) K3POD_TRY(write_text_file(options.svg, predict_svg(report)));
    const std::string text = options.json ? predict_json(report) : predict_text(report);
    std::fputs(text.c_str(), stdout);
    return Status::ok();
}

}  // namespace k3pod
