#include "quantization_config.h"

namespace k3pod {
namespace {

constexpr std::string_view kSection = "quantization_config";

// {"language_model.model.layers.3.self_attn.q_proj": {"quant_algo": "FP8_PB_WO"}, ...}
std::vector<QuantizationConfig::Module> read_modules(ConfigFields& section) {
    std::vector<QuantizationConfig::Module> modules;
    for (auto& [name, fields] : section.members("quantized_layers")) {
        const std::string_view algo = fields.text("quant_algo");
        if (algo == "FP8_PB_WO") {
            modules.push_back({std::string(name), WeightFormat::kFp8Tile});
        } else if (algo == "NVFP4") {
            modules.push_back({std::string(name), WeightFormat::kNvfp4});
            if (fields.has("group_size")) fields.require_integer("group_size", 16);
        } else {
            fields.refuse("quant_algo", "\"FP8_PB_WO\" or \"NVFP4\"");
        }
    }
    return modules;
}

QuantizationConfig read_modelopt(ConfigFields& section) {
    QuantizationConfig config;
    config.method = QuantMethod::kModeloptMixed;
    section.require_text("quant_algo", "MIXED_PRECISION");
    section.require_absent("kv_cache_quant_algo");
    config.modules = read_modules(section);
    for (const std::string_view key : {"ignore", "exclude_modules"}) {
        if (!section.has(key)) continue;
        for (std::string& pattern : section.texts(key)) config.ignore.push_back(std::move(pattern));
    }
    return config;
}

void read_group(ConfigFields& group, std::vector<std::string>& targets) {
    ConfigFields weights = group.object("weights");
    weights.require_integer("num_bits", 4);
    weights.require_text("type", "float");
    weights.require_integer("group_size", 32);
    if (weights.has("symmetric")) weights.require_bool("symmetric", true);
    for (std::string& target : group.texts("targets")) targets.push_back(std::move(target));
}

QuantizationConfig read_compressed_tensors(ConfigFields& section) {
    QuantizationConfig config;
    config.method = QuantMethod::kCompressedTensors;
    section.require_text("format", "mxfp4-pack-quantized");
    section.require_absent("kv_cache_scheme");
    if (section.has("config_groups")) {
        for (auto& [name, group] : section.members("config_groups")) {
            read_group(group, config.targets);
        }
    } else {
        config.targets = {"Linear"};
    }
    if (section.has("ignore")) config.ignore = section.texts("ignore");
    return config;
}

}  // namespace

QuantizationConfig read_quantization_config(ConfigFields& root, ConfigFields& text) {
    if (!root.has(kSection) && !text.has(kSection)) return {};
    if (root.has(kSection)) text.require_absent(kSection);
    ConfigFields section = root.has(kSection) ? root.object(kSection) : text.object(kSection);
    const std::string_view method = section.text("quant_method");
    if (method == "modelopt_mixed") return read_modelopt(section);
    if (method == "compressed-tensors") return read_compressed_tensors(section);
    section.refuse("quant_method", "\"modelopt_mixed\" or \"compressed-tensors\"");
    return {};
}

}  // namespace k3pod
