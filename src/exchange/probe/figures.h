#pragma once
// What a server measured of a frame, as values of its reply's first row. Each figure is four digits
// of base 256: bf16 holds those exactly, and every other holder adds zeros to them.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <span>

namespace k3pod::exchange {

struct ServerFigures {
    uint32_t queue_ns = 0;  // from the frame's arrival to its work
    uint32_t work_ns = 0;
    uint32_t last_tail_ns = 0;  // of the frame before: from its work to its reply
};

inline constexpr int32_t kDigits = 4;
inline constexpr int32_t kFigureValues = 3 * kDigits;

inline int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

inline uint32_t clamp_ns(int64_t ns) {
    return static_cast<uint32_t>(std::clamp<int64_t>(ns, 0, std::numeric_limits<uint32_t>::max()));
}

// Those of holder `node` in `row`; the figures of all others there become zeros.
inline void write_figures(const ServerFigures& figures, int32_t node, std::span<float> row) {
    const auto stride = static_cast<size_t>(kFigureValues);
    std::fill(row.begin(), row.end() - static_cast<std::ptrdiff_t>(row.size() % stride), 0.0f);
    float* at = row.data() + stride * static_cast<size_t>(node);
    for (uint32_t value : {figures.queue_ns, figures.work_ns, figures.last_tail_ns}) {
        for (int32_t i = 0; i < kDigits; ++i, value >>= 8) {
            *at++ = static_cast<float>(value & 0xff);
        }
    }
}

inline ServerFigures read_figures(int32_t node, std::span<const float> row) {
    const float* at = row.data() + int64_t{kFigureValues} * node;
    const auto read = [&at] {
        uint32_t value = 0;
        for (int32_t i = 0; i < kDigits; ++i) value |= static_cast<uint32_t>(*at++) << (8 * i);
        return value;
    };
    ServerFigures figures;
    figures.queue_ns = read();
    figures.work_ns = read();
    figures.last_tail_ns = read();
    return figures;
}

}  // namespace k3pod::exchange
