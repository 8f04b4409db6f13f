#pragma once
// E0: from the facts of a machine to lines for a person. Each check is a function of the facts and
// of what the pod file needs of this machine, and nothing else. What the pod file does not need is
// never a failure: a pod over tcp runs on a machine without RDMA.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "k3pod/config/pod_config.h"
#include "k3pod/control/control.h"
#include "k3pod/fabric/facts.h"

namespace k3pod {

// What the pod file asks of one machine.
struct NodeNeeds {
    std::string node;
    TransportName transport = TransportName::kTcp;
    std::string device{};  // NIC function or interface; empty: any
    int64_t port_rate_bits_per_s =
        0;                     // of the switch port that the node is cabled to; 0: not given
    int64_t locked_bytes = 0;  // memory that RDMA registers, at least; 0: none
    int64_t memory_bytes = 0;  // that is still to be taken; 0: not known
    bool needs_gpu = false;
    int32_t gpu_clock_mhz = 0;  // cap; 0: not given
    std::vector<Peer> peers{};
};

// `node`: "station" or the name of an [[expert]]. `taken_bytes` of the experts' budget are in
// memory already.
NodeNeeds needs_of(const PodConfig& pod, const std::string& node, int64_t taken_bytes = 0);

// One line a check, always in the same order.
std::vector<CheckLine> check_facts(const NodeFacts& facts, const NodeNeeds& needs);

// Who a node is, and what its clock says.
struct Counterpart {
    NodeIdentity identity;
    int64_t unix_time_ns = 0;
};
// Build ids, UCX releases and clocks of two nodes. Expected are those of `self`, whose time is that
// at which the other's answer arrived.
std::vector<CheckLine> compare_nodes(const Counterpart& self, const Counterpart& other);

const char* verdict_name(Verdict verdict);  // "ok", "warning", "failure"
// Of all lines; ok of none.
Verdict worst_of(std::span<const CheckLine> lines);

}  // namespace k3pod
