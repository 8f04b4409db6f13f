#pragma once
// What every back end refuses before it works on a frame.

#include <cstdint>
#include <span>

#include "k3pod/base/status.h"
#include "k3pod/wire/frame.h"

namespace k3pod {

struct FrameBounds {
    int32_t max_rows = 0;
    int32_t top_k = 0;
    int64_t max_entries() const { return int64_t{max_rows} * top_k; }
};

// Entries come off a wire: what is wrong with them is an answer, not an abort. kInvalidArgument
// names the rows or the entry.
Status check_frame(const FrameBounds& bounds, int32_t rows,
                   std::span<const wire::WireEntry> entries);

// kNotFound: the entries name an expert of which this holder has nothing.
Status expert_not_held(int32_t layer, int32_t expert);

}  // namespace k3pod
