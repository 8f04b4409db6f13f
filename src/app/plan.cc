// `k3pod plan`: can the pod hold the model, who holds what, and how fast that is.

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "commands.h"
#include "k3pod/base/file.h"
#include "plan_report.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

constexpr int kDone = 0, kFailed = 1, kDoesNotFit = 2;

Result<PlanModel> model_of_config(const fs::path& file) {
    K3POD_ASSIGN(const std::string text, read_text_file(file));
    auto config = parse_model_config(text);
    if (!config) return config.status().with_context(file.string());
    auto bytes = count_model_bytes(text);
    if (!bytes) return bytes.status().with_context(file.string());
    return PlanModel{std::move(*config), *bytes};
}

Result<PlanModel> model_of_checkpoint(const fs::path& dir) {
    K3POD_ASSIGN(ModelConfig config, read_model_config(dir));
    K3POD_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir));
    K3POD_ASSIGN(const Release release, check_model(checkpoint, config));
    const ModelBytes bytes = count_model_bytes(checkpoint, config, release);
    return PlanModel{std::move(config), bytes};
}

// The model folder's checkpoint, or its config.json alone, or, on a machine that has no such
// folder, NAME.config.json beside the pod file.
Result<PlanModel> model_of_pod(const PodConfig& pod) {
    std::error_code error;
    if (fs::exists(pod.model / "model.safetensors.index.json", error)) {
        return model_of_checkpoint(pod.model);
    }
    if (fs::exists(pod.model / "config.json", error)) {
        return model_of_config(pod.model / "config.json");
    }
    const fs::path beside =
        pod.file.parent_path() / (pod.model.filename().string() + ".config.json");
    if (fs::exists(beside, error)) return model_of_config(beside);
    return not_found(fmt::format(
        "this machine has neither the model folder {} nor {}; give --checkpoint DIR or --config "
        "FILE",
        pod.model.string(), beside.string()));
}

Result<PlanModel> read_plan_model(const PodConfig& pod, const PlanOptions& options) {
    if (!options.config.empty()) return model_of_config(options.config);
    if (!options.checkpoint.empty()) return model_of_checkpoint(options.checkpoint);
    return model_of_pod(pod);
}

void apply(const PlanOptions& options, PodConfig& pod) {
    PlacementConfig& placement = pod.placement;
    if (options.mode == "auto") placement.mode = ModeChoice::kAuto;
    if (options.mode == "whole") placement.mode = ModeChoice::kWhole;
    if (options.mode == "sliced") placement.mode = ModeChoice::kSliced;
    if (options.pack == "nvfp4") placement.pack = PackChoice::kNvfp4;
    if (options.pack == "mxfp4") placement.pack = PackChoice::kMxfp4;
    if (options.batch_tokens > 0) placement.batch_tokens = options.batch_tokens;
    for (const std::string& trace : options.traces) placement.traces.emplace_back(trace);
}

Status write_file(const std::string& path, const std::string& text) {
    if (path.empty()) return Status::ok();
    errno = 0;
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (out) return Status::ok();
    return invalid_argument(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

Result<int> plan_and_print(PodConfig pod, const PlanOptions& options) {
    apply(options, pod);
    K3POD_ASSIGN(const PlanModel model, read_plan_model(pod, options));
    K3POD_ASSIGN(const PodPlan plan, plan_pod(pod, model));
    K3POD_ASSIGN(const PlanReport report, make_plan_report(pod, model, plan));
    if (plan.placement) K3POD_TRY(write_file(options.out, to_json(*plan.placement)));
    if (!options.svg.empty()) K3POD_TRY(write_file(options.svg, plan_svg(report)));
    const std::string text = options.json ? plan_json(report) : plan_text(report);
    std::fputs(text.c_str(), stdout);
    return plan.placement ? kDone : kDoesNotFit;
}

}  // namespace

int run_plan(PodConfig pod, const PlanOptions& options) {
    const Result<int> exit = plan_and_print(std::move(pod), options);
    if (exit) return *exit;
    std::fprintf(stderr, "k3pod: %s\n", exit.status().message().c_str());
    return kFailed;
}

}  // namespace k3pod
