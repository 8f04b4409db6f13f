// k3pod check: this machine, or from the station every machine of a pod; or a checkpoint.

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "check_node.h"
#include "check_report.h"
#include "commands.h"
#include "k3pod/api/chat.h"
#include "k3pod/control/control.h"
#include "k3pod/fabric/check.h"
#include "k3pod/tokenizer/tokenizer.h"
#include "k3pod/transport/transport.h"
#include "k3pod/weights/inspect.h"
#include "model_folder.h"
#include "progress.h"

namespace k3pod {
namespace {

constexpr Nanoseconds kNodeTimeout = std::chrono::seconds(20);

int64_t unix_time_ns() {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

NodeIdentity own_identity() {
    NodeIdentity identity;
    identity.node = "station";
    identity.build_id = build_id();
    identity.ucx_version = ucx_version();
    return identity;
}

CheckLine no_answer(const ExpertConfig& node, const Status& why) {
    return {.check = "control",
            .verdict = Verdict::kFailure,
            .found = why.message(),
            .expected = "an answer from the running expert server",
            .remedy = fmt::format("on that machine: k3pod expert --pod FILE --node {}, or k3pod "
                                  "check --pod FILE --node {}",
                                  node.name, node.name)};
}

CheckedNode check_server(const ExpertConfig& node) {
    const auto check = read_node_check(node.control, kNodeTimeout);
    const int64_t end_ns = unix_time_ns();
    if (!check) return {node.name, {no_answer(node, check.status())}};
    std::vector<CheckLine> lines{{.check = "control",
                                  .verdict = Verdict::kOk,
                                  .found = "answers at " + node.control,
                                  .expected = "an answer from the running expert server",
                                  .remedy = {}}};
    const auto compared =
        compare_nodes({own_identity(), end_ns}, {check->identity, check->unix_time_ns});
    lines.insert(lines.end(), compared.begin(), compared.end());
    lines.insert(lines.end(), check->lines.begin(), check->lines.end());
    return {node.name, lines};
}

void add_line(CheckedNode& model, const char* check, const Result<std::string>& found,
              const char* expected) {
    model.lines.push_back(
        {.check = check,
         .verdict = found ? Verdict::kOk : Verdict::kFailure,
         .found = found ? *found : found.status().message(),
         .expected = expected,
         .remedy = found ? "" : "copy the file again, from where the release is whole"});
}

// Every expert once, as a node that holds it would load it.
Result<std::string> look_at_experts(const ModelFolder& model) {
    ProgressBoard board(STDERR_FILENO);
    K3POD_ASSIGN(const ExpertFormats formats,
                 inspect_experts(
                     model.checkpoint, model.config, model.release,
                     [&](int64_t done, int64_t total) { board.update("experts", done, total); }));
    board.finish();
    return fmt::format("{} as mxfp4, {} kept as nvfp4, {} bytes in memory", formats.num_mxfp4,
                       formats.kept_nvfp4.size(), formats.memory_bytes);
}

Result<std::string> look_at_sampling(const std::filesystem::path& dir) {
    K3POD_ASSIGN(const GenerationDefaults defaults, read_generation_defaults(dir));
    return fmt::format("temperature {:g}, top_p {:g}", defaults.temperature, defaults.top_p);
}

Result<std::string> look_at_chat(const std::filesystem::path& dir, int32_t vocab) {
    const auto tokenizer = Tokenizer::load(dir, vocab);
    if (!tokenizer) return tokenizer.status();
    const auto wording = read_chat_wording(dir);
    if (!wording) return wording.status();
    return std::string("read");
}

}  // namespace

Status run_check(const PodConfig& pod, const CheckOptions& options) {
    const bool is_station = options.node.empty() || options.node == "station";
    if (!is_station && pod.find_expert(options.node) == nullptr) {
        return invalid_argument(
            fmt::format("--node {}: neither 'station' nor an [[expert]] of {} has that name",
                        options.node, pod.file.string()));
    }
    const std::string node = is_station ? "station" : options.node;
    std::vector<CheckedNode> nodes{{node, check_this_machine(pod, node, 0, GpuLoad::kBusy)}};
    if (options.node.empty()) {
        for (const ExpertConfig& expert : pod.experts) nodes.push_back(check_server(expert));
    }
    return report_check(nodes, options.json);
}

Status run_check_model(const CheckOptions& options) {
    CheckedNode checked{.node = options.model, .lines = {}};
    const auto model = open_model_folder(options.model);
    add_line(checked, "tensors",
             model ? Result<std::string>(fmt::format("{} tensors, {} bytes, all that a pod needs",
                                                     model->checkpoint.num_tensors(),
                                                     model->checkpoint.total_bytes()))
                   : Result<std::string>(model.status()),
             "config.json, the index and every shard agree");
    if (model) {
        add_line(checked, "tokenizer and chat", look_at_chat(options.model, model->config.vocab),
                 "tiktoken.model, tokenizer_config.json, chat_format.json");
        add_line(checked, "sampling", look_at_sampling(options.model),
                 "generation_config.json, or none");
        add_line(checked, "experts", look_at_experts(*model), "every expert can be loaded");
    }
    return report_check(std::span(&checked, 1), options.json);
}

}  // namespace k3pod
