// Constants of a prediction: any bytes give figures or one sentence; printed ones read back.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "k3pod/config/predict_constants.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto constants = k3pod::parse_predict_constants(text, "bench.toml");
    if (!constants.is_ok()) {
        if (constants.status().message().empty()) std::abort();
        return 0;
    }
    const auto again = k3pod::parse_predict_constants(k3pod::to_toml(*constants), "bench.toml");
    if (!again.is_ok() || !(*again == *constants)) std::abort();
    return 0;
}
