#include "fabric_report.h"

#include <vector>

namespace k3pod {

FabricReport check_pod_fabric(const PodConfig& pod) {
    std::vector<std::string> servers;
    for (const ExpertConfig& expert : pod.experts) servers.push_back(expert.name);
    return check_fabric(pod.fabric, servers);
}

std::string fabric_text(const FabricReport& fabric) {
    std::string lines;
    for (const Finding& finding : fabric.findings) {
        lines += (finding.is_problem ? "PROBLEM: " : "") + finding.text + "\n";
    }
    return lines;
}

nlohmann::ordered_json fabric_json(const FabricReport& fabric) {
    using Json = nlohmann::ordered_json;
    Json switches = Json::array(), findings = Json::array();
    for (const SwitchUse& use : fabric.switches) {
        switches.push_back({{"name", use.name},
                            {"cages", use.cages},
                            {"trunk_cages", use.trunk_cages},
                            {"station_cages", use.station_cages},
                            {"expert_servers", use.num_servers},
                            {"room", use.room}});
    }
    for (const Finding& finding : fabric.findings) {
        findings.push_back({{"problem", finding.is_problem}, {"text", finding.text}});
    }
    return {{"switches", std::move(switches)}, {"findings", std::move(findings)}};
}

}  // namespace k3pod
