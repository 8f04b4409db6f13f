#pragma once
// Values of a pod file: text such as "64 MiB" or "100 ms" to numbers and back, each refusal saying
// what was found and what is expected. The caller adds file, line and key.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/clock.h"
#include "k3pod/base/status.h"

namespace k3pod {

struct Unit {
    std::string_view name;
    double factor;  // of the base unit
};
// "7.1 TB/s" in the base unit of `units`; empty when it is not a number and one of the units.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units);

// "1048576", "64 MiB", "104.49 GiB", "95 GB". Not negative, at most 2^60.
Result<int64_t> parse_bytes(std::string_view text);
std::string format_bytes(int64_t bytes);
// "104.49 GiB (112195291382 B)": for messages that compare two sizes.
std::string format_bytes_twice(int64_t bytes);

// "231 GB/s", "7.1 TB/s": a size per second.
Result<int64_t> parse_bandwidth(std::string_view text);
std::string format_bandwidth(int64_t bytes_per_s);

// "1s", "100 ms", "2 min", "50 us". Not negative, at most one day.
Result<Nanoseconds> parse_duration(std::string_view text);
std::string format_duration(Nanoseconds duration);

// "127.0.0.1:8000", "[::1]:8000", "spark-1.local:7001". Port 0 is legal (any free port).
Status check_host_port(std::string_view text);

// Names and paths end up in logs, metrics and messages: valid UTF-8 without control characters, at
// most 4096 bytes.
Status check_text(std::string_view text);

// 1 to 64 letters, digits, dots, hyphens and underscores: a node's name is an argument, a label and
// a part of JSON.
Status check_node_name(std::string_view name);

// The candidate nearest to `word` by edit distance, or "" when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace k3pod
