#include "process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace k3pod {
namespace {

using prometheus::MetricType;
using Value = std::optional<double>;

// Fields of /proc/self/stat behind the program name, which may itself hold spaces and brackets.
std::vector<std::string> stat_fields() {
    std::ifstream file("/proc/self/stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return {};
    std::istringstream rest(line.substr(name_end + 1));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    return fields;
}

// A field by its number in proc(5), where the first one behind the name is 3.
Value stat_field(size_t number) {
    const std::vector<std::string> fields = stat_fields();
    if (fields.size() <= number - 3) return {};
    return std::strtod(fields[number - 3].c_str(), nullptr);
}

double ticks_per_second() {
    return static_cast<double>(sysconf(_SC_CLK_TCK));
}

Value cpu_seconds() {
    const Value user = stat_field(14), system = stat_field(15);
    if (!user || !system) return {};
    return (*user + *system) / ticks_per_second();
}

Value resident_bytes() {
    const Value pages = stat_field(24);
    if (!pages) return {};
    return *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

Value virtual_bytes() {
    return stat_field(23);
}

Value start_time_seconds() {
    const Value ticks = stat_field(22);
    std::ifstream file("/proc/stat");
    double boot_time = 0;
    for (std::string key; file >> key; file.ignore(1 << 20, '\n')) {
        if (key == "btime" && file >> boot_time) break;
    }
    if (!ticks || boot_time <= 0) return {};
    return boot_time + *ticks / ticks_per_second();
}

Value open_fds() {
    std::error_code error;
    std::filesystem::directory_iterator it("/proc/self/fd", error), end;
    if (error) return {};
    double count = -1;  // The descriptor that reads the folder is not the process's own.
    for (; it != end; it.increment(error)) ++count;
    return count;
}

Value max_fds() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
    return static_cast<double>(limit.rlim_cur);
}

Value memory_info_bytes(std::string_view wanted) {
    std::ifstream file("/proc/meminfo");
    std::string key;
    double kibibytes = 0;
    for (; file >> key >> kibibytes; file.ignore(1 << 20, '\n')) {
        if (key == wanted) return kibibytes * 1024;
    }
    return {};
}

Value memory_total_bytes() {
    return memory_info_bytes("MemTotal:");
}
Value memory_available_bytes() {
    return memory_info_bytes("MemAvailable:");
}

struct Source {
    const char* name;
    const char* help;
    MetricType type;
    bool from_os_label;  // says that the figure is the operating system's, not a GPU library's
    Value (*read)();
};

constexpr std::array kSources{
    Source{"process_cpu_seconds_total", "User and system CPU time spent in seconds.",
           MetricType::Counter, false, cpu_seconds},
    Source{"process_resident_memory_bytes", "Resident memory size in bytes.", MetricType::Gauge,
           false, resident_bytes},
    Source{"process_virtual_memory_bytes", "Virtual memory size in bytes.", MetricType::Gauge,
           false, virtual_bytes},
    Source{"process_start_time_seconds", "Start of the process in seconds since the epoch.",
           MetricType::Gauge, false, start_time_seconds},
    Source{"process_open_fds", "Open file descriptors.", MetricType::Gauge, false, open_fds},
    Source{"process_max_fds", "Limit of open file descriptors.", MetricType::Gauge, false, max_fds},
    Source{"k3pod_node_memory_total_bytes", "Memory of this machine.", MetricType::Gauge, true,
           memory_total_bytes},
    Source{"k3pod_node_memory_available_bytes", "Memory that can be had without swapping.",
           MetricType::Gauge, true, memory_available_bytes},
};

prometheus::MetricFamily family_of(const Source& source, double value) {
    prometheus::ClientMetric metric;
    if (source.from_os_label) metric.label.push_back({"source", "os"});
    if (source.type == MetricType::Counter) {
        metric.counter.value = value;
    } else {
        metric.gauge.value = value;
    }
    return {source.name, source.help, source.type, {std::move(metric)}};
}

}  // namespace

std::vector<prometheus::MetricFamily> collect_process_metrics() {
    std::vector<prometheus::MetricFamily> families;
    for (const Source& source : kSources) {
        if (const Value value = source.read()) families.push_back(family_of(source, *value));
    }
    return families;
}

std::vector<std::string> process_metric_names() {
    std::vector<std::string> names;
    for (const Source& source : kSources) names.emplace_back(source.name);
    return names;
}

}  // namespace k3pod
