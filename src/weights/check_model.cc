#include <fmt/format.h>

#include "k3pod/weights/model_weights.h"
#include "module_formats.h"
#include "tensor_lookup.h"
#include "tensor_table.h"

namespace k3pod {
namespace {

constexpr WeightFormat expert_format(Release release) {
    return release == Release::kNvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4;
}

std::string weight_tensor(std::string_view module, WeightFormat format) {
    return fmt::format("{}.weight{}", module, format == WeightFormat::kMxfp4 ? "_packed" : "");
}

// Walks every tensor that a node of the pod may read and remembers which it has met.
class ModelChecker {
  public:
    ModelChecker(const Checkpoint& checkpoint, const ModelConfig& config, ModuleFormats formats)
        : checkpoint_(checkpoint),
          config_(config),
          formats_(std::move(formats)),
          is_met_(static_cast<size_t>(checkpoint.num_tensors())) {}

    Status check_station() {
        StationWeights weights;
        const StationTable table = station_table(config_, weights);
        for (const StationMatrix& matrix : table.matrices) K3POD_TRY(check_matrix(matrix));
        for (const StationVector& vector : table.vectors) {
            K3POD_ASSIGN(const TensorInfo* tensor, require_vector(checkpoint_, vector));
            meet(tensor);
        }
        return Status::ok();
    }

    // The first expert decides; every other one must follow.
    Result<Release> find_release() const {
        const std::string module = expert_module(config_.first_dense_layers, 0, Projection::kW1);
        const auto format = stored_format(checkpoint_, module);
        if (format == WeightFormat::kNvfp4) return Release::kNvfp4;
        if (format == WeightFormat::kMxfp4) return Release::kMxfp4;
        return data_loss(fmt::format(
            "{}: expert weight {}.weight is {}, expected NVFP4 (weight U8) or MXFP4 (weight_packed "
            "U8)",
            checkpoint_.dir().string(), module, format ? weight_format_name(*format) : "missing"));
    }

    Status check_experts(Release release) {
        for (const Projection projection : kProjections) {
            expected_[static_cast<size_t>(projection)] =
                expert_tensors(config_, release, projection);
        }
        for (int32_t layer = config_.first_dense_layers; layer < config_.num_layers; ++layer) {
            for (int32_t expert = 0; expert < config_.num_experts; ++expert) {
                const Status status = check_expert(layer, expert, release);
                if (!status) {
                    return status.with_context(fmt::format("layer {}, expert {}", layer, expert));
                }
            }
        }
        return Status::ok();
    }

    Status check_nothing_else() const {
        const auto& tensors = checkpoint_.tensors();
        for (size_t i = 0; i < tensors.size(); ++i) {
            if (is_met_[i] || is_vision_tensor(tensors[i].name)) continue;
            return data_loss(
                fmt::format("tensor {} in {} does not belong to the model of config.json ({} "
                            "layers, {} experts): "
                            "config and checkpoint are of different models",
                            tensors[i].name, checkpoint_.file_path(tensors[i].file).string(),
                            config_.num_layers, config_.num_experts));
        }
        return Status::ok();
    }

  private:
    void meet(const TensorInfo* tensor) {
        is_met_[static_cast<size_t>(tensor - checkpoint_.tensors().data())] = true;
    }

    Status check_matrix(const StationMatrix& matrix) {
        if (matrix.rule != MatrixRule::kPlain) {
            K3POD_TRY(check_claim(matrix.module, stored_format(checkpoint_, matrix.module)));
        }
        K3POD_ASSIGN(const StoredMatrix stored, require_matrix(checkpoint_, matrix));
        meet(stored.data);
        if (stored.scales != nullptr) meet(stored.scales);
        return Status::ok();
    }

    Status check_expert(int32_t layer, int32_t expert, Release release) {
        for (const Projection projection : kProjections) {
            std::string name = expert_module(layer, expert, projection);
            const auto found = stored_format(checkpoint_, name);
            if (found && *found != expert_format(release)) {
                return data_loss(fmt::format(
                    "tensor {} is stored as {}, expected {} as in the experts before it: mixed "
                    "formats are not supported",
                    weight_tensor(name, *found), weight_format_name(*found),
                    weight_format_name(expert_format(release))));
            }
            K3POD_TRY(check_claim(name, found));
            const size_t module_size = name.size();
            for (const auto& [suffix, dtype, shape] : expected_[static_cast<size_t>(projection)]) {
                name.resize(module_size);
                name += suffix;
                K3POD_ASSIGN(const TensorInfo* tensor,
                             require_tensor(checkpoint_, name, dtype, shape));
                meet(tensor);
            }
        }
        return Status::ok();
    }

    // What was found decides; a config that says otherwise describes another checkpoint.
    Status check_claim(std::string_view module, std::optional<WeightFormat> found) const {
        if (!found) return Status::ok();  // The look-up by name gives the better message.
        K3POD_ASSIGN(const WeightFormat claimed, formats_.claimed(module));
        if (claimed == *found) return Status::ok();
        return data_loss(
            fmt::format("tensor {} in {} is stored as {}, but quantization_config in config.json "
                        "says {}: correct "
                        "its module lists or use the config that belongs to these files",
                        weight_tensor(module, *found), checkpoint_.dir().string(),
                        weight_format_name(*found), weight_format_name(claimed)));
    }

    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    ModuleFormats formats_;
    std::vector<bool> is_met_;               // By position in Checkpoint::tensors().
    std::vector<ExpertTensor> expected_[3];  // By Projection.
};

}  // namespace

Result<Release> check_model(const Checkpoint& checkpoint, const ModelConfig& config) {
    Result<ModuleFormats> formats = ModuleFormats::compile(config.quantization);
    if (!formats) {
        return formats.status().with_context((checkpoint.dir() / "config.json").string() +
                                             ": quantization_config");
    }
    ModelChecker checker(checkpoint, config, std::move(*formats));
    K3POD_ASSIGN(const Release release, checker.find_release());
    K3POD_TRY(checker.check_station());
    K3POD_TRY(checker.check_experts(release));
    K3POD_TRY(checker.check_nothing_else());
    return release;
}

}  // namespace k3pod
