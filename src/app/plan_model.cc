// Which model a plan or a prediction is of.

#include <fmt/format.h>

#include "k3pod/base/file.h"
#include "pod_plan.h"
#include "text_files.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

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
    K3POD_TRY(read_text_files(dir, config).status());
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

}  // namespace

Result<PlanModel> read_plan_model(const PodConfig& pod, const std::string& config_file,
                                  const std::string& checkpoint_dir) {
    if (!config_file.empty()) return model_of_config(config_file);
    if (!checkpoint_dir.empty()) return model_of_checkpoint(checkpoint_dir);
    return model_of_pod(pod);
}

}  // namespace k3pod
