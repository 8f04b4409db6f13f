// The pod file: any bytes give a configuration or one sentence; a printed configuration reads back.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "k3pod/config/pod_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = k3pod::parse_pod_config(text, "/etc/pod.toml");
    if (!config.is_ok()) {
        if (config.status().message().empty()) std::abort();
        return 0;
    }
    const auto again = k3pod::parse_pod_config(k3pod::to_toml(*config), "/etc/pod.toml");
    if (!again.is_ok() || !(*again == *config)) std::abort();
    return 0;
}
