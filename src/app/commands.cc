#include "commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "fabric_commands.h"
#include "k3pod/base/text.h"

namespace k3pod {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int report(const Status& status) {
    if (status) return 0;
    std::fprintf(stderr, "k3pod: %s\n", escape_controls(status.message()).c_str());
    return kExitFailed;
}

// Reads the pod file and runs `serve` on it, or prints the effective configuration.
int with_pod(const std::string& file, bool print_config,
             const std::function<Status(const PodConfig&)>& serve) {
    if (const Status clean = check_environment(environ); !clean) return report(clean);
    const auto pod = read_pod_config(file);
    if (!pod) return report(pod.status());
    if (print_config) {
        std::fputs(to_toml(*pod).c_str(), stdout);
        return 0;
    }
    return report(serve(*pod));
}

struct Arguments {
    std::string pod;
    std::string node;
    bool print_config = false;
    AskOptions ask;
    InspectOptions inspect;
    PlanOptions plan;
    StatusOptions status;
    PredictOptions predict;
    CheckOptions check;
    FabricOptions fabric;
};

void add_pod_options(CLI::App& command, Arguments& arguments) {
    command
        .add_option("--pod", arguments.pod, "The pod file; every node of a pod reads the same one")
        ->required()
        ->type_name("FILE");
    command.add_flag("--print-config", arguments.print_config,
                     "Print the effective configuration, defaults filled in, and exit");
}

CLI::App* add_station(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "station", "Run the station: attention, KV cache, the endpoint for users");
    add_pod_options(*command, arguments);
    command->footer(
        "Loads the non-expert weights, dials every expert server of the pod file and waits for "
        "those that\n"
        "are not up yet. Serves an OpenAI-compatible API at [station] listen: "
        "/v1/chat/completions,\n"
        "/v1/completions, /v1/models, /tokenize, /detokenize, /health, /metrics.\n"
        "SIGTERM, Ctrl-C or the end of the terminal drains: no new requests, running ones finish "
        "within\n"
        "drain_timeout, exit 0. Without a terminal (a service, nohup) SIGHUP changes nothing.\n\n"
        "Example: k3pod station --pod configs/tiny.toml");
    return command;
}

CLI::App* add_expert(CLI::App& app, Arguments& arguments) {
    CLI::App* command =
        app.add_subcommand("expert", "Run an expert server: a resident share of the experts");
    add_pod_options(*command, arguments);
    command->add_option("--node", arguments.node, "Which [[expert]] of the pod file this is")
        ->required()
        ->type_name("NAME");
    command->footer(
        "Waits for the station to dial its control address, loads the shards it is given and "
        "answers.\n"
        "Start order does not matter, and either side may be restarted. SIGTERM, Ctrl-C or the end "
        "of\n"
        "the terminal drains; stop the station first.\n\n"
        "Example: k3pod expert --pod configs/tiny.toml --node spark-1");
    return command;
}

CLI::App* add_ask(CLI::App& app, Arguments& arguments) {
    CLI::App* command =
        app.add_subcommand("ask", "Ask a running pod one question and stream the answer");
    command->add_option("question", arguments.ask.question, "The question")
        ->required()
        ->check([](const std::string& question) {
            const bool is_blank = question.find_first_not_of(" \t\r\n") == std::string::npos;
            return std::string(is_blank ? "is empty; write what you want to know" : "");
        });
    command->add_option("--url", arguments.ask.url, "The station's endpoint")
        ->default_val("http://127.0.0.1:8000")
        ->type_name("URL");
    command->add_flag_callback(
        "--no-thinking", [&arguments] { arguments.ask.thinking = false; },
        "Answer without thinking first");
    command->add_flag("--show-thinking", arguments.ask.show_thinking,
                      "Print the reasoning to stderr");
    command->add_option("--timeout", arguments.ask.timeout_s, "Give up after this much silence")
        ->default_val(120)
        ->check(CLI::Range(1, 86400))
        ->type_name("SECONDS");
    command->footer(
        "Greedy (temperature 0), so the same question gets the same answer.\n\n"
        "Example: k3pod ask \"What is 47 + 38?\"");
    return command;
}

CLI::App* add_inspect(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "inspect", "Show what lies in a checkpoint: tensors, formats, sizes, experts per format");
    command->add_option("dir", arguments.inspect.dir, "The checkpoint folder")
        ->required()
        ->type_name("DIR");
    command->add_flag("--headers-only", arguments.inspect.headers_only,
                      "Do not read the experts to see which format they would be held in");
    command->add_flag("--json", arguments.inspect.json, "Print JSON instead of text");
    command->footer(
        "Reads every expert once, one at a time: minutes for the real release, whose repack it "
        "judges\n"
        "expert by expert. Fails with the sentence that a node would refuse the checkpoint "
        "with.\n\n"
        "Example: k3pod inspect models/k3-tiny");
    return command;
}

// An empty name, as of an unset shell variable, must not silently write nothing.
void add_output_option(CLI::App& command, const char* name, std::string& path, const char* help) {
    command.add_option(name, path, help)->type_name("FILE")->check([](const std::string& file) {
        return std::string(file.empty() ? "is empty; name the file to write" : "");
    });
}

void add_workload_options(CLI::App& command, PredictOptions& options) {
    command.add_option("--batch", options.batch, "Sequences that decode at once")->default_val(1);
    command.add_option("--context", options.context, "Tokens that each sequence has behind it")
        ->default_val(4096);
    CLI::Option* drafts = command
                              .add_option("--drafts", options.drafts,
                                          "Tokens that a sequence guesses ahead in a step")
                              ->default_val(0);
    command
        .add_option("--acceptance", options.acceptance,
                    "Share of the drafts that turn out right, 0 to 1")
        ->default_val(0)
        ->needs(drafts);
    command.add_option("--chunk", options.chunk,
                       "Tokens of a prefill step. Default: [station] max_batch_tokens");
}

CLI::App* add_predict(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "predict", "Predict tokens per second of a pod with a placement, and what bounds them");
    PredictOptions& options = arguments.predict;
    add_pod_options(*command, arguments);
    command->add_option("--placement", options.placement, "The placement, as k3pod plan writes it")
        ->required()
        ->type_name("FILE");
    command
        ->add_option("--config", options.config,
                     "The model's config.json. Default: that of the pod file's checkpoint")
        ->type_name("FILE");
    command
        ->add_option(
            "--constants", options.constants,
            "Times and bandwidths with their sources. Default: configs/constants-k3-pod.toml "
            "as built in")
        ->type_name("FILE");
    command
        ->add_option("--trace", options.traces,
                     "Picks that were counted, besides [placement] traces; may be given again")
        ->type_name("FILE");
    command->add_option("--pack", options.pack, "How experts lie in memory: mxfp4 or nvfp4")
        ->default_val("mxfp4")
        ->check(CLI::IsMember({"mxfp4", "nvfp4"}));
    add_workload_options(*command, options);
    command->add_flag("--json", options.json, "Print JSON instead of text");
    add_output_option(*command, "--svg", options.svg, "Draw one step into this file");
    command->footer(
        "Measures nothing: the time of a step follows from the constants, the pod file and the "
        "placement\n"
        "(docs/predict.md). Also says whether the pod file's cables and power line carry the "
        "pod.\n\n"
        "Example: k3pod predict --pod configs/k3-pod.toml --config "
        "configs/Kimi-K3-NVFP4.config.json\n"
        "                        --placement placement.json --batch 4 --context 32768");
    return command;
}

void add_plan_model_options(CLI::App& command, PlanOptions& options) {
    CLI::Option* config =
        command
            .add_option("--config", options.config,
                        "Count the model's bytes from this config.json. Default: the pod file's "
                        "model folder, or FOLDER.config.json beside the pod file")
            ->type_name("FILE");
    command
        .add_option("--checkpoint", options.checkpoint,
                    "Count them from the headers of this model folder")
        ->type_name("DIR")
        ->excludes(config);
}

CLI::App* add_plan(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "plan", "Say whether a pod can hold the model, who holds what, and how fast that is");
    PlanOptions& options = arguments.plan;
    add_pod_options(*command, arguments);
    add_plan_model_options(*command, options);
    command
        ->add_option("--trace", options.traces,
                     "How often experts are picked, as docs/placement.md says; may be repeated. "
                     "Without one all are picked alike")
        ->type_name("FILE");
    command->add_option("--mode", options.mode, "Instead of [placement] mode")
        ->check(CLI::IsMember({"auto", "whole", "sliced"}));
    command->add_option("--pack", options.pack, "Instead of [placement] pack")
        ->check(CLI::IsMember({"nvfp4", "mxfp4"}));
    command->add_option("--batch", options.batch_tokens, "Instead of [placement] batch_tokens")
        ->check(CLI::Range(1, 65535));
    add_output_option(*command, "--out", options.out, "Write the placement here");
    command->add_flag("--json", options.json, "Print JSON instead of text");
    add_output_option(*command, "--svg", options.svg,
                      "Draw memory and time of every holder into this file");
    command->footer(
        "Reads no tensor and reaches no machine. Exit 0: it fits; 2: it does not, and the report "
        "says by how\n"
        "much and what would help; 1: an input is wrong.\n\n"
        "Example: k3pod plan --pod configs/k3-pod.toml --out placement.json");
    return command;
}

CLI::App* add_check(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "check", "Look at the machines of a pod, or at a checkpoint, before anything is served");
    CheckOptions& options = arguments.check;
    CLI::Option* pod =
        command->add_option("--pod", arguments.pod, "The pod file")->type_name("FILE");
    command
        ->add_option("--node", options.node,
                     "Only this machine, as this node: 'station' or the name of an [[expert]]. "
                     "Default: this machine as the station, and every running expert server")
        ->type_name("NAME")
        ->needs(pod);
    command
        ->add_option("--model", options.model, "Check this checkpoint folder, as a node loads it")
        ->type_name("DIR")
        ->excludes(pod);
    command->add_flag("--json", options.json, "Print JSON instead of a table");
    command->footer(
        "One line a check: ok, warning or failure, what was found, what is expected and the "
        "command "
        "that\n"
        "mends it. What the pod file does not need is no failure. Exit 0: no failure; 1: a "
        "failure. "
        "A GPU\n"
        "of the pod file is made to work for a second, to see its clock (docs/fabric.md).\n\n"
        "Example: k3pod check --pod configs/tiny.toml --node station\n"
        "         k3pod check --model models/k3-tiny");
    return command;
}

CLI::App* add_status(CLI::App& app, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(
        "status", "Read back the placement of a running pod from station and expert servers");
    add_pod_options(*command, arguments);
    command
        ->add_option("--placement", arguments.status.placement,
                     "Compare it with this file, as k3pod plan writes it")
        ->type_name("FILE");
    command->footer(
        "Exit 0 when every node applies what the station says (and what the file says), else 1.\n\n"
        "Example: k3pod status --pod configs/tiny.toml --placement placement.json");
    return command;
}

// What is wrong, and which --help has the rest.
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
    std::string said = error.what();
    std::string help = "k3pod";
    const std::vector<CLI::App*> commands = app->get_subcommands();
    const std::vector<std::string> unknown = app->remaining();
    if (!commands.empty()) {
        const std::string& command = commands.front()->get_name();
        help += " " + command;
        const bool has_extras =
            error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
        if (has_extras && command == "ask") said += "; put a question of several words in quotes";
    } else if (!unknown.empty()) {
        said = fmt::format("'{}' is no command", unknown.front());
    }
    return fmt::format("k3pod: {}\nRun {} --help for more information.\n", escape_controls(said),
                       help);
}

}  // namespace

int run_command(int argc, char** argv) {
    CLI::App app("k3pod: serves Kimi-K3 on a pod of one station and several expert servers");
    app.require_subcommand(1);
    app.failure_message(usage_message);
    app.set_version_flag("--version", [] { return version_text(); });
    Arguments arguments;
    const CLI::App* station = add_station(app, arguments);
    const CLI::App* expert = add_expert(app, arguments);
    const CLI::App* ask = add_ask(app, arguments);
    const CLI::App* inspect = add_inspect(app, arguments);
    const CLI::App* predict = add_predict(app, arguments);
    const CLI::App* plan = add_plan(app, arguments);
    const CLI::App* status = add_status(app, arguments);
    const CLI::App* check = add_check(app, arguments);
    const FabricCommand fabric(app, arguments.pod, arguments.fabric);
    const CLI::App* version =
        app.add_subcommand("version", "Print version, build id and protocol versions");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (app.exit(error) == 0) return 0;
        // There 2 says that the model does not fit, which a misspelt flag must not say.
        return *plan ? kExitFailed : kExitUsage;
    }
    if (*station) return with_pod(arguments.pod, arguments.print_config, run_station);
    if (*expert) {
        return with_pod(arguments.pod, arguments.print_config, [&](const PodConfig& pod) {
            return run_expert_server(pod, arguments.node);
        });
    }
    if (*ask) return report(run_ask(arguments.ask));
    if (*predict) {
        return with_pod(arguments.pod, arguments.print_config,
                        [&](const PodConfig& pod) { return run_predict(pod, arguments.predict); });
    }
    if (*plan) {
        // What does not fit has a status of its own.
        int exit = kExitFailed;
        const int read = with_pod(arguments.pod, arguments.print_config, [&](const PodConfig& pod) {
            exit = run_plan(pod, arguments.plan);
            return Status::ok();
        });
        return read == 0 && !arguments.print_config ? exit : read;
    }
    if (*status) {
        return with_pod(arguments.pod, arguments.print_config,
                        [&](const PodConfig& pod) { return run_status(pod, arguments.status); });
    }
    if (*check && !arguments.check.model.empty()) return report(run_check_model(arguments.check));
    if (*check) {
        return with_pod(arguments.pod, false,
                        [&](const PodConfig& pod) { return run_check(pod, arguments.check); });
    }
    if (fabric.is_called()) {
        return with_pod(arguments.pod, false,
                        [&](const PodConfig& pod) { return fabric.run(pod); });
    }
    if (*inspect) return report(run_inspect(arguments.inspect));
    if (*version) std::fputs(version_text().c_str(), stdout);
    return 0;
}

}  // namespace k3pod
