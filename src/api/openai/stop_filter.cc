#include "stop_filter.h"

#include <algorithm>
#include <utility>

namespace k3pod {

std::string StopFilter::push(std::string_view text) {
    if (matched_ != nullptr) return {};
    held_ += text;
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) {
        const size_t at = held_.find(stop);
        if (at < first) {
            first = at;
            matched_ = &stop;
        }
    }
    if (matched_ != nullptr) {
        const size_t end = first + (include_stop_ ? matched_->size() : 0);
        return std::exchange(held_, {}).substr(0, end);
    }
    const size_t num_safe = held_.size() - num_held_bytes();
    std::string safe = held_.substr(0, num_safe);
    held_.erase(0, num_safe);
    return safe;
}

std::string StopFilter::flush() {
    return std::exchange(held_, {});
}

// The longest end of the text that is the beginning of a stop string. UTF-8 characters stay whole,
// because stop strings begin with whole ones.
size_t StopFilter::num_held_bytes() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
        size_t length = std::min(stop.size() - 1, held_.size());
        while (length > longest && !held_.ends_with(std::string_view(stop).substr(0, length)))
            --length;
        longest = std::max(longest, length);
    }
    return longest;
}

}  // namespace k3pod
