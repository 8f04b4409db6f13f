#include "fabric_commands.h"

namespace k3pod {
namespace {

void add_pod(CLI::App& command, std::string& pod) {
    command.add_option("--pod", pod, "The pod file")->required()->type_name("FILE");
}

void add_measuring(CLI::App& command, std::string& pod, FabricOptions& options, int rounds,
                   const char* what) {
    add_pod(command, pod);
    command.add_option("--rounds", options.rounds, what)
        ->default_val(rounds)
        ->check(CLI::Range(20, 1'000'000));
    command
        .add_option("--constants", options.constants,
                    "The constants that --out starts from. Default: those built in")
        ->type_name("FILE");
    command
        .add_option("--out", options.out,
                    "Write them here with what was measured, for k3pod predict --constants")
        ->type_name("FILE")
        ->check([](const std::string& file) {
            return std::string(file.empty() ? "is empty; name the file to write" : "");
        });
    command.add_flag("--json", options.json, "Print JSON instead of a table");
}

}  // namespace

FabricCommand::FabricCommand(CLI::App& app, std::string& pod, FabricOptions& options)
    : options_(options),
      fabric_(app.add_subcommand("fabric", "Measure the wire of a pod that serves nothing yet")),
      serve_(fabric_->add_subcommand("serve", "Answer measurements on an expert server's machine")),
      link_(fabric_->add_subcommand("link", "Bandwidth and latency to each server and to all")),
      hop_(fabric_->add_subcommand("hop",
                                   "The exchange of a layer as the pod pays it, and where "
                                   "its time goes")) {
    fabric_->require_subcommand(1);
    add_pod(*serve_, pod);
    serve_->add_option("--node", options.node, "Which [[expert]] of the pod file this is")
        ->required()
        ->type_name("NAME");
    add_measuring(*link_, pod, options, 1000, "Messages of each size");
    add_measuring(*hop_, pod, options, 200, "Exchanges of each case");
    fabric_->footer(
        "On every expert server's machine run k3pod fabric serve, then on the station's link or "
        "hop.\n"
        "No k3pod station or k3pod expert of the pod may run meanwhile.\n\n"
        "Example: k3pod fabric serve --pod configs/tiny.toml --node spark-1\n"
        "         k3pod fabric hop --pod configs/tiny.toml --out constants.toml");
}

bool FabricCommand::is_called() const {
    return fabric_->parsed();
}

Status FabricCommand::run(const PodConfig& pod) const {
    if (serve_->parsed()) return run_fabric_serve(pod, options_.node);
    if (link_->parsed()) return run_fabric_link(pod, options_);
    return run_fabric_hop(pod, options_);
}

}  // namespace k3pod
