#include "k3pod/weights/inspect.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "tensor_reader.h"

namespace k3pod {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Parts of the dotted name that are numbers become "*"; digits inside a word stay.
std::string without_numbers(std::string_view name) {
    std::string out;
    for (size_t begin = 0, end = 0; begin <= name.size(); begin = end + 1) {
        end = std::min(name.find('.', begin), name.size());
        const std::string_view part = name.substr(begin, end - begin);
        const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), is_digit);
        if (begin > 0) out += '.';
        out += is_number ? std::string_view("*") : part;
    }
    return out;
}

}  // namespace

std::vector<TensorKind> tensor_kinds(const Checkpoint& checkpoint) {
    std::map<std::tuple<std::string, DType, std::vector<int64_t>>, TensorKind> kinds;
    for (const TensorInfo& tensor : checkpoint.tensors()) {
        const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
        TensorKind& kind = kinds[{without_numbers(tensor.name), tensor.dtype, shape}];
        kind.num_tensors += 1;
        kind.size_bytes += tensor.size_bytes;
    }
    std::vector<TensorKind> sorted;
    for (auto& [key, kind] : kinds) {
        std::tie(kind.name, kind.dtype, kind.shape) = key;
        sorted.push_back(std::move(kind));
    }
    return sorted;
}

Result<ExpertFormats> inspect_experts(const Checkpoint& checkpoint, const ModelConfig& config,
                                      Release release, const LoadProgress& progress) {
    const int64_t expert_bytes = expert_shard_bytes(config, release, config.moe_intermediate);
    ProgressMeter meter(progress, expert_bytes * config.num_moe_layers() * config.num_experts);
    ExpertFormats formats;
    for (int32_t layer = config.first_dense_layers; layer < config.num_layers; ++layer) {
        for (int32_t expert = 0; expert < config.num_experts; ++expert) {
            K3POD_ASSIGN(const ExpertShardWeights weights,
                         load_expert_shard(checkpoint, config, release, layer, expert, 0,
                                           config.moe_intermediate));
            formats.memory_bytes += weights.size_bytes();
            if (weights.format() == WeightFormat::kNvfp4) {
                formats.kept_nvfp4.push_back({layer, expert});
            } else {
                formats.num_mxfp4 += 1;
            }
            meter.add(expert_bytes);
        }
    }
    return formats;
}

}  // namespace k3pod
