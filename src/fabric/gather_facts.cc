#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>

#include "k3pod/fabric/facts.h"

namespace k3pod {
namespace {

namespace fs = std::filesystem;

double leading_number(const std::string& text) {
    return std::strtod(text.c_str(), nullptr);
}

// "32.0 GT/s PCIe" and "4"; 0 where the file is not there.
double read_number(const System& system, const fs::path& file) {
    const auto text = system.read(file);
    return text ? leading_number(*text) : 0;
}

void add_sysfs(const System& system, RdmaPort& port) {
    const fs::path device = fs::path("/sys/class/infiniband") / port.device / "device";
    const auto interfaces = system.list(device / "net");
    if (!interfaces.empty()) port.interface = interfaces.front();
    if (const auto event = system.read(device / "uevent")) {
        constexpr std::string_view kSlot = "PCI_SLOT_NAME=";
        const size_t at = event->find(kSlot);
        if (at != std::string::npos) {
            const size_t begin = at + kSlot.size();
            port.pci_address = event->substr(begin, event->find('\n', begin) - begin);
        }
    }
    port.pcie.width = static_cast<int32_t>(read_number(system, device / "current_link_width"));
    port.pcie.max_width = static_cast<int32_t>(read_number(system, device / "max_link_width"));
    port.pcie.gigatransfers = read_number(system, device / "current_link_speed");
    port.pcie.max_gigatransfers = read_number(system, device / "max_link_speed");
}

void gather_ports(const System& system, NodeFacts& facts) {
    auto ports = system.rdma_ports();
    if (!ports) {
        facts.why_no_ports = ports.status().message();
        return;
    }
    facts.ports = std::move(*ports);
    if (facts.ports.empty()) facts.why_no_ports = "this machine has no RDMA device";
    for (RdmaPort& port : facts.ports) add_sysfs(system, port);
}

// "Max locked memory   8388608   8388608   bytes": the soft limit.
int64_t limit_of(const std::string& limits, std::string_view name) {
    const size_t at = limits.find(name);
    if (at == std::string::npos) return 0;
    std::istringstream rest(limits.substr(at + name.size()));
    std::string value;
    rest >> value;
    return value == "unlimited" ? -1 : static_cast<int64_t>(leading_number(value));
}

LimitFacts gather_limits(const System& system) {
    const auto limits = system.read("/proc/self/limits");
    if (!limits) return {};
    return {limit_of(*limits, "Max locked memory"), limit_of(*limits, "Max open files")};
}

MemoryFacts gather_memory(const System& system) {
    std::map<std::string, int64_t> bytes;
    if (const auto text = system.read("/proc/meminfo")) {
        std::istringstream lines(*text);
        std::string key;
        for (int64_t kibibytes = 0; lines >> key >> kibibytes; lines.ignore(1 << 20, '\n')) {
            bytes[key] = kibibytes * 1024;
        }
    }
    MemoryFacts memory;
    memory.total_bytes = bytes["MemTotal:"];
    memory.available_bytes = bytes["MemAvailable:"];
    memory.free_bytes = bytes["MemFree:"];
    memory.cached_bytes = bytes["Cached:"];
    memory.swap_total_bytes = bytes["SwapTotal:"];
    memory.swap_used_bytes = bytes["SwapTotal:"] - bytes["SwapFree:"];
    // "always [madvise] never"
    if (const auto words = system.read("/sys/kernel/mm/transparent_hugepage/enabled")) {
        const size_t begin = words->find('['), end = words->find(']');
        if (begin != std::string::npos && end != std::string::npos) {
            memory.large_pages = words->substr(begin + 1, end - begin - 1);
        }
    }
    return memory;
}

std::vector<std::string> split_fields(const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) {
        const size_t begin = field.find_first_not_of(' ');
        fields.push_back(begin == std::string::npos ? "" : field.substr(begin));
    }
    return fields;
}

// In the order of kGpuQuery. "[N/A]" is read as 0.
std::vector<GpuFacts> parse_gpus(const std::string& text) {
    std::vector<GpuFacts> gpus;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto fields = split_fields(line);
        if (fields.size() != 6) continue;
        gpus.push_back({.name = fields[0],
                        .driver = fields[1],
                        .power_state = fields[2],
                        .clock_mhz = static_cast<int32_t>(leading_number(fields[3])),
                        .max_clock_mhz = static_cast<int32_t>(leading_number(fields[4])),
                        .watts = leading_number(fields[5])});
    }
    return gpus;
}

void gather_gpus(const System& system, NodeFacts& facts) {
    const auto lines = system.gpu_lines();
    if (lines) facts.gpus = parse_gpus(*lines);
    if (!lines) facts.why_no_gpus = lines.status().message();
    if (lines && facts.gpus.empty()) facts.why_no_gpus = "the driver tells of no GPU";
}

// `version` is "1.13.1 (/usr/lib/libucp.so.0)". UCX loads its modules from ucx/ beside the library.
UcxFacts gather_ucx(const System& system, const std::string& version) {
    UcxFacts ucx;
    ucx.version = version.substr(0, version.find(' '));
    const size_t begin = version.find('('), end = version.rfind(')');
    if (begin != std::string::npos && end > begin) {
        ucx.library = version.substr(begin + 1, end - begin - 1);
    }
    const auto modules = system.list(fs::path(ucx.library).parent_path() / "ucx");
    ucx.has_rdma = std::any_of(modules.begin(), modules.end(), [](const std::string& name) {
        return name.starts_with("libuct_ib");
    });
    return ucx;
}

}  // namespace

NodeFacts gather_facts(const System& system, const Questions& questions) {
    NodeFacts facts;
    gather_ports(system, facts);
    facts.limits = gather_limits(system);
    facts.memory = gather_memory(system);
    if (questions.wants_gpus) gather_gpus(system, facts);
    facts.ucx = gather_ucx(system, questions.ucx_version);
    if (const auto release = system.read("/proc/sys/kernel/osrelease")) facts.kernel = *release;
    for (const Peer& peer : questions.peers) {
        facts.peers.push_back({peer.name, peer.address, system.route_to(peer.address)});
    }
    return facts;
}

std::optional<Gid> choose_gid(const RdmaPort& port) {
    for (const Gid& gid : port.gids) {
        if (!port.is_ethernet) return gid;
        if (gid.is_roce_v2 && gid.address.starts_with("::ffff:")) return gid;
    }
    return std::nullopt;
}

}  // namespace k3pod
