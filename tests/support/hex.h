#pragma once
// Bytes as text for command lines and pipes.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace k3pod {

inline std::string to_hex(std::span<const std::byte> bytes) {
    const char* digits = "0123456789abcdef";
    std::string text;
    for (const std::byte byte : bytes) {
        text += digits[std::to_integer<int>(byte) >> 4];
        text += digits[std::to_integer<int>(byte) & 15];
    }
    return text;
}

inline std::vector<std::byte> from_hex(const std::string& text) {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

}  // namespace k3pod
