#pragma once
// Which rows and picks of one step go to which holder.

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/holder_table.h"
#include "k3pod/base/status.h"
#include "k3pod/model/expert_port.h"
#include "k3pod/wire/frame.h"

namespace k3pod::exchange {

// Everything is allocated at construction; plan() allocates only for an error.
class FramePlan {
  public:
    FramePlan(const wire::FrameLimits& limits, size_t num_holders);

    // kInvalidArgument names what is wrong with the rows: shapes over the limits, an expert that
    // the layer does not have, one picked twice in a row, a weight that is not finite.
    Status plan(const RoutedRows& step, const HolderTable& holders);

    // Rows of the step that the holder's frame carries, ascending. Empty: nothing to send.
    std::span<const uint16_t> rows(size_t holder) const { return frames_[holder].rows; }
    // Sorted by (expert, row), rows counted within the frame.
    std::span<const wire::WireEntry> entries(size_t holder) const {
        return frames_[holder].entries;
    }

  private:
    struct Frame {
        std::vector<uint16_t> rows;       // [rows of the frame], of the step
        std::vector<uint16_t> frame_row;  // [R], where a row of the step lies in the frame
        std::vector<wire::WireEntry> entries;
    };

    Status check_shape(const RoutedRows& step, const HolderTable& holders) const;
    Status sort_picks(const RoutedRows& step);
    void choose_rows(const RoutedRows& step, const HolderTable& holders);
    void add_entries(const RoutedRows& step, const HolderTable& holders);

    const wire::FrameLimits limits_;
    std::vector<Frame> frames_;    // one for each holder
    std::vector<uint64_t> picks_;  // [R * K], sorted; see pick_key in the .cc
};

}  // namespace k3pod::exchange
