// k3pod inspect: what lies in a checkpoint folder, and in which format its experts would be held.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "k3pod/weights/checkpoint.h"
#include "k3pod/weights/inspect.h"
#include "k3pod/weights/model_config.h"
#include "progress.h"
#include "readable.h"
#include "table.h"
#include "text_files.h"

namespace k3pod {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxListedExperts = 20;

const char* release_name(Release release) {
    switch (release) {
        case Release::kNvfp4:
            return "nvfp4";
        case Release::kMxfp4:
            return "mxfp4";
    }
    return "";
}

struct Inspection {
    std::vector<TensorKind> kinds;
    int64_t num_tensors = 0;
    int64_t total_bytes = 0;
    ModelConfig config;
    Release release = Release::kNvfp4;
    int64_t num_experts = 0;               // of all layers
    int64_t expert_file_bytes = 0;         // of all experts, as in the files
    std::optional<ExpertFormats> formats;  // empty: tensors were not read
};

std::string tensors_text(const Inspection& found) {
    TextTable table({"tensors", "dtype", "shape", "count", "bytes"});
    table.left(1).left(2);
    for (const TensorKind& kind : found.kinds) {
        table.add({kind.name, dtype_name(kind.dtype),
                   fmt::format("[{}]", fmt::join(kind.shape, ", ")),
                   fmt::format("{}", kind.num_tensors), fmt::format("{}", kind.size_bytes)});
    }
    return fmt::format("{}{} tensors, {} bytes ({})\n\n", table.text(), found.num_tensors,
                       found.total_bytes, readable_bytes(found.total_bytes));
}

std::string kept_text(const std::vector<ExpertId>& kept) {
    std::string out;
    for (size_t i = 0; i < std::min(kept.size(), kMaxListedExperts); ++i) {
        out += fmt::format("  layer {} expert {}\n", kept[i].layer, kept[i].expert);
    }
    if (kept.size() > kMaxListedExperts) {
        out += fmt::format("  and {} more (--json lists all)\n", kept.size() - kMaxListedExperts);
    }
    return out;
}

std::string repack_text(const Inspection& found, const ExpertFormats& formats) {
    if (found.release == Release::kMxfp4) return "repack: none needed\n";
    if (formats.kept_nvfp4.empty()) return "repack to mxfp4: exact for every expert\n";
    return fmt::format(
               "repack to mxfp4: exact for {} of {} experts; these have a block without an "
               "exact MXFP4 form and keep nvfp4:\n",
               formats.num_mxfp4, found.num_experts) +
           kept_text(formats.kept_nvfp4);
}

std::string experts_text(const Inspection& found) {
    std::string out = fmt::format(
        "release: {}; all that a pod needs is there\nexperts in the files: {} as {}, {} bytes "
        "({})\n",
        release_name(found.release), found.num_experts, release_name(found.release),
        found.expert_file_bytes, readable_bytes(found.expert_file_bytes));
    if (!found.formats) return out + "experts in memory: not looked at (--headers-only)\n";
    const ExpertFormats& formats = *found.formats;
    out += fmt::format("experts in memory: {} as mxfp4, {} as nvfp4, {} bytes ({})\n",
                       formats.num_mxfp4, formats.kept_nvfp4.size(), formats.memory_bytes,
                       readable_bytes(formats.memory_bytes));
    return out + repack_text(found, formats);
}

Json to_json(const ExpertFormats& formats) {
    Json kept = Json::array();
    for (const ExpertId& id : formats.kept_nvfp4) {
        kept.push_back({{"layer", id.layer}, {"expert", id.expert}});
    }
    return {{"mxfp4", formats.num_mxfp4},
            {"nvfp4", formats.kept_nvfp4.size()},
            {"bytes", formats.memory_bytes},
            {"repack_is_exact", formats.kept_nvfp4.empty()},
            {"kept_nvfp4", std::move(kept)}};
}

Json to_json(const Inspection& found) {
    Json kinds = Json::array();
    for (const TensorKind& kind : found.kinds) {
        kinds.push_back({{"name", kind.name},
                         {"dtype", dtype_name(kind.dtype)},
                         {"shape", kind.shape},
                         {"count", kind.num_tensors},
                         {"bytes", kind.size_bytes}});
    }
    return {
        {"num_tensors", found.num_tensors},
        {"total_bytes", found.total_bytes},
        {"release", release_name(found.release)},
        {"experts_in_files", {{"count", found.num_experts}, {"bytes", found.expert_file_bytes}}},
        {"experts_in_memory", found.formats ? to_json(*found.formats) : Json(nullptr)},
        {"tensors", std::move(kinds)}};
}

Status look_at_experts(const Checkpoint& checkpoint, Inspection& found) {
    ProgressBoard board(STDERR_FILENO);
    K3POD_ASSIGN(found.formats, inspect_experts(checkpoint, found.config, found.release,
                                                [&](int64_t done, int64_t total) {
                                                    board.update("experts", done, total);
                                                }));
    board.finish();
    return Status::ok();
}

}  // namespace

Status run_inspect(const InspectOptions& options) {
    K3POD_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.dir));
    Inspection found;
    found.kinds = tensor_kinds(checkpoint);
    found.num_tensors = checkpoint.num_tensors();
    found.total_bytes = checkpoint.total_bytes();
    // Before the checks: what is wrong is easier to see beside what is there.
    if (!options.json) std::fputs(tensors_text(found).c_str(), stdout);
    K3POD_ASSIGN(found.config, read_model_config(options.dir));
    K3POD_ASSIGN(found.release, check_model(checkpoint, found.config));
    K3POD_TRY(read_text_files(options.dir, found.config).status());
    found.num_experts = int64_t{found.config.num_moe_layers()} * found.config.num_experts;
    found.expert_file_bytes = found.num_experts * expert_shard_bytes(found.config, found.release,
                                                                     found.config.moe_intermediate);
    if (!options.headers_only) K3POD_TRY(look_at_experts(checkpoint, found));
    const std::string text = options.json ? to_json(found).dump(2) + "\n" : experts_text(found);
    std::fputs(text.c_str(), stdout);
    return Status::ok();
}

}  // namespace k3pod
