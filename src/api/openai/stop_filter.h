#pragma once
// Watches one channel of text (reasoning or content) for stop strings, which may begin in one token
// and end in another.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace k3pod {

// Text that may be the beginning of a stop string is held back until it is one or is not. A match
// never crosses channels: each has its own filter.
class StopFilter {
  public:
    // `stops` is borrowed; none of them is empty. With include_stop the stop string itself is
    // shown.
    StopFilter(const std::vector<std::string>& stops, bool include_stop)
        : stops_(stops), include_stop_(include_stop) {}

    // The text that can be shown now. After a match nothing more is.
    std::string push(std::string_view text);
    // What is held back, when the channel ends without a match.
    std::string flush();
    // The stop string that was found; null: none so far.
    const std::string* matched() const { return matched_; }

  private:
    size_t num_held_bytes() const;

    const std::vector<std::string>& stops_;
    const bool include_stop_;
    std::string held_;
    const std::string* matched_ = nullptr;
};

}  // namespace k3pod
