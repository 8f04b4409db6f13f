#pragma once
// What each UCX transport is set to. docs/wire.md gives the reasons and the figures.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "k3pod/transport/transport.h"

namespace k3pod::ucx {

struct Settings {
    const char* name;  // "ucx/tcp"
    // Given to ucp_config_modify in this order, on top of every default.
    std::vector<std::pair<const char*, const char*>> keys;
    // Transports that a connection may be made of, as UCX names them. Another one is refused.
    std::vector<std::string> lanes;
    // The longest payload that travels as one UCX fragment; longer ones are split by us.
    int64_t fragment_bytes;
    // Registered receive buffers that UCX asks for at the start; 0 where nothing is locked.
    int64_t locked_bytes;
};

const Settings& settings_of(TransportKind kind);

// Before each context. For the whole process: UCX leaves signals alone, takes every buffer for host
// memory, and the UCX_* variables of the environment are removed with a warning that names them.
void isolate_process();

}  // namespace k3pod::ucx
