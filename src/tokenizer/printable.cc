#include "tokenizer/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace k3pod {

std::string printable(std::string_view value) {
    constexpr size_t kShown = 40;
    std::string text = "\"";
    for (const char c : value.substr(0, kShown)) {
        if (c >= ' ' && c <= '~') {
            text += c;
        } else {
            text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
        }
    }
    text += value.size() > kShown ? "...\"" : "\"";
    return text;
}

}  // namespace k3pod
