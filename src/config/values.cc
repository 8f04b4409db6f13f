#include "values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "k3pod/base/text.h"

namespace k3pod {
namespace {

// Largest first, so that formatting picks the largest that divides.
constexpr std::array<Unit, 9> kByteUnits{{{"TiB", 1099511627776.0},
                                          {"TB", 1e12},
                                          {"GiB", 1073741824.0},
                                          {"GB", 1e9},
                                          {"MiB", 1048576.0},
                                          {"MB", 1e6},
                                          {"KiB", 1024.0},
                                          {"KB", 1e3},
                                          {"B", 1.0}}};
constexpr std::array<Unit, 5> kTimeUnits{
    {{"min", 60e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1.0}}};

constexpr double kMostBytes = 0x1p60;  // a sum of a few stays an int64_t
constexpr double kMostNanoseconds = 86400e9;

struct Quantity {
    double number = 0;
    std::string_view unit;
};

std::optional<Quantity> split_quantity(std::string_view text) {
    const size_t digits = text.find_first_not_of("0123456789.");
    Quantity q;
    const std::string_view number = text.substr(0, digits);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), q.number);
    if (number.empty() || end != number.data() + number.size()) return {};
    if (error == std::errc::result_out_of_range) {
        const bool is_large = number.find_first_of("123456789") < number.find('.');
        q.number = is_large ? std::numeric_limits<double>::infinity() : 0;
    } else if (error != std::errc()) {
        return {};
    }
    if (digits == std::string_view::npos) return q;
    q.unit = text.substr(digits);
    while (!q.unit.empty() && q.unit.front() == ' ') q.unit.remove_prefix(1);
    return q;
}

std::optional<double> in_base_unit(std::string_view text, std::span<const Unit> units,
                                   std::string_view default_unit) {
    const auto q = split_quantity(text);
    if (!q) return {};
    const std::string_view name = q->unit.empty() ? default_unit : q->unit;
    for (const Unit& unit : units) {
        if (unit.name == name) return q->number * unit.factor;
    }
    return {};
}

}  // namespace

std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
    return in_base_unit(text, units, "");
}

Result<int64_t> parse_bytes(std::string_view text) {
    const auto bytes = in_base_unit(text, kByteUnits, "B");
    if (!bytes) {
        return invalid_argument(
            fmt::format("'{}' is not a size; write bytes or a number with B, KiB, MiB, GiB or TiB, "
                        "e.g. \"64 MiB\"",
                        shortened(text)));
    }
    if (*bytes > kMostBytes) {
        return resource_exhausted(fmt::format("'{}' is too large; the limit is {}", shortened(text),
                                              format_bytes(static_cast<int64_t>(kMostBytes))));
    }
    return static_cast<int64_t>(std::llround(*bytes));
}

std::string format_bytes_twice(int64_t bytes) {
    for (const Unit& unit : {kByteUnits[2], kByteUnits[4]}) {  // GiB, MiB
        if (static_cast<double>(bytes) < unit.factor) continue;
        return fmt::format("{:.2f} {} ({} B)", static_cast<double>(bytes) / unit.factor, unit.name,
                           bytes);
    }
    return fmt::format("{} B", bytes);
}

std::string format_bytes(int64_t bytes) {
    for (const Unit& unit : kByteUnits) {
        const bool binary = unit.name.size() != 2;
        const auto factor = static_cast<int64_t>(unit.factor);
        if (binary && bytes >= factor && bytes % factor == 0) {
            return fmt::format("{} {}", bytes / factor, unit.name);
        }
    }
    return fmt::format("{} B", bytes);
}

Result<int64_t> parse_bandwidth(std::string_view text) {
    constexpr std::string_view kPerSecond = "/s";
    if (text.ends_with(kPerSecond)) {
        const auto bytes = parse_bytes(text.substr(0, text.size() - kPerSecond.size()));
        if (bytes && *bytes > 0) return *bytes;
        if (bytes.status().code() == Code::kResourceExhausted) return bytes.status();
    }
    return invalid_argument(
        fmt::format("'{}' is not a bandwidth; write a size per second above 0, e.g. \"231 GB/s\"",
                    shortened(text)));
}

std::string format_bandwidth(int64_t bytes_per_s) {
    return format_bytes(bytes_per_s) + "/s";
}

Result<Nanoseconds> parse_duration(std::string_view text) {
    const auto ns = in_base_unit(text, kTimeUnits, "");
    if (!ns) {
        return invalid_argument(
            fmt::format("'{}' is not a time; write a number with us, ms, s or min, e.g. \"500 ms\"",
                        shortened(text)));
    }
    if (*ns > kMostNanoseconds) {
        return invalid_argument(
            fmt::format("'{}' is too long; the limit is one day, 1440 min", shortened(text)));
    }
    return Nanoseconds(std::llround(*ns));
}

std::string format_duration(Nanoseconds duration) {
    for (const Unit& unit : kTimeUnits) {
        const auto factor = static_cast<int64_t>(unit.factor);
        if (duration.count() >= factor && duration.count() % factor == 0) {
            return fmt::format("{} {}", duration.count() / factor, unit.name);
        }
    }
    return "0 s";
}

Status check_host_port(std::string_view text) {
    const auto refuse = [&](const std::string& why) {
        return invalid_argument(
            fmt::format("'{}' is not an address: {}; write host:port, e.g. \"127.0.0.1:8000\"",
                        shortened(text), why));
    };
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return refuse("it has no port");
    const std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.empty()) return refuse("it has no host");
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (!bracketed && host.find_first_of(" :/[]") != std::string_view::npos) {
        return refuse(
            fmt::format("'{}' is no host; an IPv6 address stands in brackets", shortened(host)));
    }
    int value = -1;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (error != std::errc() || end != port.data() + port.size() || value < 0 || value > 65535) {
        return refuse(
            fmt::format("the port '{}' is not a number from 0 to 65535", shortened(port)));
    }
    return Status::ok();
}

Status check_text(std::string_view text) {
    constexpr size_t kMaxBytes = 4096;
    if (text.size() > kMaxBytes) {
        return invalid_argument(
            fmt::format("has {} bytes, the limit is {}", text.size(), kMaxBytes));
    }
    if (!has_controls(text)) return Status::ok();
    return invalid_argument(
        fmt::format("'{}' has control characters or is not UTF-8; write it without",
                    shortened(escape_controls(text))));
}

Status check_node_name(std::string_view name) {
    constexpr size_t kMaxBytes = 64;
    const auto is_legal = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
    };
    if (name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), is_legal)) {
        return Status::ok();
    }
    return invalid_argument(
        fmt::format("'{}' is not a node's name; write 1 to {} letters, digits, '.', '-' and '_'",
                    shortened(name), kMaxBytes));
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    std::string best;
    size_t best_distance = std::max<size_t>(2, word.size() / 2);
    for (const std::string& candidate : candidates) {
        std::vector<size_t> row(candidate.size() + 1);
        std::iota(row.begin(), row.end(), size_t{0});
        for (size_t i = 0; i < word.size(); ++i) {
            size_t diagonal = row[0];
            row[0] = i + 1;
            for (size_t j = 0; j < candidate.size(); ++j) {
                const size_t replaced = diagonal + (word[i] == candidate[j] ? 0 : 1);
                diagonal = row[j + 1];
                row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
            }
        }
        if (row.back() < best_distance) {
            best_distance = row.back();
            best = candidate;
        }
    }
    return best;
}

}  // namespace k3pod
