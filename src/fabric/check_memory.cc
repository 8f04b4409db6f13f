// Limits of the process and memory of the machine, against what the pod file will take.

#include <fmt/format.h>

#include "fabric/checks.h"

namespace k3pod::fabric {
namespace {

constexpr int64_t kLeastOpenFiles = 4096;

std::string limit_text(int64_t value) {
    return value < 0 ? "unlimited" : fmt::format("{}", value);
}

void check_swap(const MemoryFacts& memory, const NodeNeeds& needs, Lines& lines) {
    const std::string found = fmt::format("{} of {} used", gibibytes(memory.swap_used_bytes),
                                          gibibytes(memory.swap_total_bytes));
    // On unified memory the GPU's pages cannot be swapped, so what is swapped is the rest.
    const bool is_harmful =
        memory.swap_used_bytes > 0 || (needs.needs_gpu && memory.swap_total_bytes > 0);
    lines.add(is_harmful ? Verdict::kWarning : Verdict::kOk, "swap", found,
              needs.needs_gpu ? "none" : "none used", "swapoff -a, and the line out of /etc/fstab");
}

void check_page_cache(const MemoryFacts& memory, const NodeNeeds& needs, Lines& lines) {
    const std::string found = fmt::format("{} cached, {} free", gibibytes(memory.cached_bytes),
                                          gibibytes(memory.free_bytes));
    // A GPU that shares the host's memory is not given what the page cache holds.
    const bool is_in_the_way = needs.needs_gpu && memory.free_bytes < needs.memory_bytes &&
                               memory.available_bytes >= needs.memory_bytes;
    lines.add(is_in_the_way ? Verdict::kWarning : Verdict::kOk, "page cache", found,
              needs.needs_gpu ? gibibytes(needs.memory_bytes) + " free" : "any",
              "sync; echo 1 > /proc/sys/vm/drop_caches");
}

}  // namespace

void check_limits(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    const int64_t locked = facts.limits.locked_bytes;
    const bool is_enough = locked < 0 || locked >= needs.locked_bytes;
    lines.add(is_enough ? Verdict::kOk : Verdict::kFailure, "locked memory", limit_text(locked),
              needs.locked_bytes == 0 ? "any (transport is not rc)"
                                      : fmt::format("{} or more", needs.locked_bytes),
              "LimitMEMLOCK=infinity in the service, or 'memlock unlimited' in "
              "/etc/security/limits.d, then log in again");
    const int64_t files = facts.limits.open_files;
    lines.add(files < 0 || files >= kLeastOpenFiles ? Verdict::kOk : Verdict::kWarning,
              "open files", limit_text(files), fmt::format("{} or more", kLeastOpenFiles),
              "LimitNOFILE=65536 in the service, or ulimit -n 65536");
}

void check_memory(const NodeFacts& facts, const NodeNeeds& needs, Lines& lines) {
    const MemoryFacts& memory = facts.memory;
    lines.add(memory.available_bytes >= needs.memory_bytes ? Verdict::kOk : Verdict::kFailure,
              "memory",
              fmt::format("{} available of {}", gibibytes(memory.available_bytes),
                          gibibytes(memory.total_bytes)),
              gibibytes(needs.memory_bytes) + " still to be taken",
              "end what else runs here, or lower the node's memory in the pod file");
    check_page_cache(memory, needs, lines);
    check_swap(memory, needs, lines);
    lines.add(memory.large_pages == "never" ? Verdict::kWarning : Verdict::kOk, "large pages",
              memory.large_pages.empty() ? "not told" : memory.large_pages, "madvise or always",
              "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

}  // namespace k3pod::fabric
