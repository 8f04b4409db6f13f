#include "readable.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3pod {
namespace {

constexpr SizeUnit kGiB{"GiB", 1 << 30};
constexpr SizeUnit kMiB{"MiB", 1 << 20};

}  // namespace

std::string grouped(int64_t number) {
    std::string text = fmt::format("{}", number);
    const size_t first = text.front() == '-' ? 1 : 0;
    for (size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, ",");
    return text;
}

SizeUnit size_unit(std::span<const int64_t> sizes) {
    const bool is_large = std::ranges::any_of(sizes, [](int64_t bytes) {
        return static_cast<double>(std::max(bytes, -bytes)) >= kGiB.bytes;
    });
    return is_large ? kGiB : kMiB;
}

std::string in_unit(int64_t bytes, const SizeUnit& unit) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / unit.bytes);
}

std::string readable_bytes(int64_t bytes) {
    const SizeUnit unit = size_unit({&bytes, 1});
    return in_unit(bytes, unit) + " " + unit.name;
}

}  // namespace k3pod
