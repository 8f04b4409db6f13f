#pragma once
// What there is to know about one machine of a pod: its RDMA ports, limits, memory, GPUs, routes
// and versions. Facts are gathered through a System, which is this machine, or a recording of
// another one in tests; nothing here judges them (fabric/check.h does).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

struct Gid {
    int32_t index = 0;
    std::string address;  // "::ffff:10.0.1.1", "fe80::..."
    bool is_roce_v2 = false;
    bool operator==(const Gid&) const = default;
};

// The PCIe link of a device; 0 is "not told".
struct PcieLink {
    int32_t width = 0, max_width = 0;
    double gigatransfers = 0, max_gigatransfers = 0;  // per second and lane; 32 is Gen5
};

// One port of an RDMA device: on a NIC, one function.
struct RdmaPort {
    std::string device;  // "mlx5_0"
    int32_t port = 1;
    bool is_active = false;
    std::string state;  // "active", "down"
    bool is_ethernet = true;
    int64_t rate_bits_per_s = 0;
    int32_t mtu = 0, max_mtu = 0;  // bytes that one RDMA packet carries
    std::vector<Gid> gids;
    std::string interface;    // "enp1s0f0np0"; empty: none
    std::string pci_address;  // "0000:01:00.0"; empty: not on PCI
    PcieLink pcie;

    std::string name() const { return device + ":" + std::to_string(port); }
};

// How the kernel would reach a peer.
struct Route {
    std::string source;     // our address on the way
    std::string interface;  // that has it
};

struct PeerRoute {
    std::string peer;     // node name
    std::string address;  // as in the pod file
    Result<Route> route = not_found("not looked up");
};

struct MemoryFacts {
    int64_t total_bytes = 0, available_bytes = 0, free_bytes = 0, cached_bytes = 0;
    int64_t swap_total_bytes = 0, swap_used_bytes = 0;
    std::string large_pages;  // the kernel's word: "always", "madvise", "never"; empty: not told
};

struct LimitFacts {
    int64_t locked_bytes = 0;  // -1: unlimited
    int64_t open_files = 0;    // likewise
};

// As the driver tells it; 0 and empty: not told.
struct GpuFacts {
    std::string name, driver;
    std::string power_state;  // "P0"
    int32_t clock_mhz = 0;    // when asked
    int32_t max_clock_mhz = 0;
    double watts = 0;
};

struct UcxFacts {
    std::string version;    // "1.13.1"
    std::string library;    // path of the library in use
    bool has_rdma = false;  // its module for RDMA lies beside it
};

struct NodeFacts {
    std::vector<RdmaPort> ports;
    std::string why_no_ports;  // with no ports: one sentence
    LimitFacts limits;
    MemoryFacts memory;
    std::vector<GpuFacts> gpus;
    std::string why_no_gpus;
    UcxFacts ucx;
    std::string kernel;  // release
    std::vector<PeerRoute> peers;
};

// Where facts come from. Any thread.
class System {
  public:
    virtual ~System() = default;
    // A text file under /proc or /sys, without the newline at its end. kNotFound names it.
    virtual Result<std::string> read(const std::filesystem::path& file) const = 0;
    // Names in a folder, sorted; none when there is no such folder.
    virtual std::vector<std::string> list(const std::filesystem::path& dir) const = 0;
    // What libibverbs answers: all but interface, pci_address and pcie. kUnimplemented in a build
    // without it.
    virtual Result<std::vector<RdmaPort>> rdma_ports() const = 0;
    // host:port as in the pod file. kNotFound: no such host; kUnavailable: no route.
    virtual Result<Route> route_to(const std::string& address) const = 0;
    // One line for each GPU, as nvidia-smi writes kGpuQuery without header and units; while the GPU
    // works, where the caller makes it work.
    virtual Result<std::string> gpu_lines() const = 0;
};

inline constexpr const char* kGpuQuery =
    "name,driver_version,pstate,clocks.current.sm,clocks.max.sm,power.draw";

// This machine.
std::unique_ptr<System> this_system();

// A node of the pod file that this one talks to.
struct Peer {
    std::string name, address;
};

struct Questions {
    std::vector<Peer> peers{};
    std::string ucx_version{};  // as ucx_version() (transport/transport.h) tells it
    bool wants_gpus = false;
};

// Never fails: what cannot be read is left at "not told".
NodeFacts gather_facts(const System& system, const Questions& questions);

// The GID that the exchange is to use on a port: RoCE v2 with an IPv4 address, the lowest index. On
// InfiniBand the first. Empty when there is none.
std::optional<Gid> choose_gid(const RdmaPort& port);

}  // namespace k3pod
