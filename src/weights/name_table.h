#pragma once
// Name -> position for a million tensor names: open addressing over 4-byte slots, so that it costs
// 8 bytes a name where a node-based map costs 50.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace k3pod {

class NameTable {
  public:
    // Room for `max_names` names.
    explicit NameTable(size_t max_names) {
        size_t slots = 16;
        while (slots < 2 * max_names) slots *= 2;
        slots_.assign(slots, kFree);
    }

    // The position stored under `name`, or `position` itself after storing it. `name_at(i)` gives
    // the name of a stored position.
    template <class NameAt>
    int32_t insert(std::string_view name, int32_t position, const NameAt& name_at) {
        int32_t& slot = slots_[slot_of(name, name_at)];
        if (slot == kFree) slot = position;
        return slot;
    }

    // -1 when absent.
    template <class NameAt>
    int32_t find(std::string_view name, const NameAt& name_at) const {
        return slots_[slot_of(name, name_at)];
    }

  private:
    static constexpr int32_t kFree = -1;

    template <class NameAt>
    size_t slot_of(std::string_view name, const NameAt& name_at) const {
        const size_t mask = slots_.size() - 1;
        size_t i = std::hash<std::string_view>()(name) & mask;
        while (slots_[i] != kFree && name_at(slots_[i]) != name) i = (i + 1) & mask;
        return i;
    }

    std::vector<int32_t> slots_;
};

}  // namespace k3pod
