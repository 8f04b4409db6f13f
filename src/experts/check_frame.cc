#include "experts/check_frame.h"

#include <fmt/format.h>

#include <utility>

namespace k3pod {

Status check_frame(const FrameBounds& bounds, int32_t rows,
                   std::span<const wire::WireEntry> entries) {
    if (rows < 0 || rows > bounds.max_rows) {
        return invalid_argument(
            fmt::format("frame has {} rows, the limit is {}", rows, bounds.max_rows));
    }
    if (std::ssize(entries) > bounds.max_entries()) {
        return invalid_argument(fmt::format("frame has {} entries, the limit is {} rows x top-{}",
                                            entries.size(), bounds.max_rows, bounds.top_k));
    }
    for (size_t i = 0; i < entries.size(); ++i) {
        const wire::WireEntry& entry = entries[i];
        if (entry.row >= rows) {
            return invalid_argument(
                fmt::format("entry {} names row {} of a frame of {} rows", i, entry.row, rows));
        }
        if (i == 0) continue;
        const wire::WireEntry& before = entries[i - 1];
        if (std::pair(before.expert, before.row) >= std::pair(entry.expert, entry.row)) {
            return invalid_argument(fmt::format(
                "entry {} (expert {}, row {}) is not behind entry {} (expert {}, row {}): entries "
                "must be sorted by expert, then row, none twice",
                i, entry.expert, entry.row, i - 1, before.expert, before.row));
        }
    }
    return Status::ok();
}

Status expert_not_held(int32_t layer, int32_t expert) {
    return not_found(fmt::format(
        "layer {} expert {} is not held here; the sender uses another placement", layer, expert));
}

}  // namespace k3pod
