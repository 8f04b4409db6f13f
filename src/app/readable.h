#pragma once
// Numbers of a report as people read them.

#include <cstdint>
#include <span>
#include <string>

namespace k3pod {

// "82,432"
std::string grouped(int64_t number);

// In which a report shows sizes: GiB, or MiB where GiB would be zeros.
struct SizeUnit {
    const char* name;
    double bytes;
};
// For sizes that stand beside each other: that of the largest.
SizeUnit size_unit(std::span<const int64_t> sizes);
// "104.49", without the unit.
std::string in_unit(int64_t bytes, const SizeUnit& unit);

// "20.26 MiB", "104.49 GiB"
std::string readable_bytes(int64_t bytes);

}  // namespace k3pod
