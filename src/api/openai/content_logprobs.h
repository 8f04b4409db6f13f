#pragma once
// Which tokens' logprobs go out with a piece of content.

#include <deque>
#include <utility>
#include <vector>

#include "k3pod/sample/sampler.h"

namespace k3pod {

// A token goes with the text in which its first byte is, or with which it completes a character. A
// token of which no byte was shown (a stop string cut it away) never goes out.
class ContentLogprobs {
  public:
    // Before on_text() with the text that the token brings.
    void add(const SampledToken& token) { waiting_.emplace_back(num_received_, token); }
    void on_text(size_t num_bytes) { num_received_ += num_bytes; }
    // The tokens of the next `num_bytes` that are shown.
    std::vector<SampledToken> take(size_t num_bytes) {
        num_shown_ += num_bytes;
        std::vector<SampledToken> tokens;
        while (!waiting_.empty() && waiting_.front().first < num_shown_) {
            tokens.push_back(std::move(waiting_.front().second));
            waiting_.pop_front();
        }
        return tokens;
    }

  private:
    size_t num_received_ = 0, num_shown_ = 0;
    std::deque<std::pair<size_t, SampledToken>> waiting_;  // with the byte at which each begins
};

}  // namespace k3pod
