#pragma once
// Cuts text before the pre-tokeniser sees it, exactly where K3's own tokenizer cuts it: this bounds
// the work on a run of equal characters, and other cuts would give other ids.

#include <cstdint>
#include <string_view>

namespace k3pod {

struct TextSlice {
    std::string_view text;  // Empty: the end.
    bool is_utf8 = true;    // False: bytes that are no character, each of them a token.
};

// A slice ends after 400,000 code points, inside those before the 25,001st of consecutive
// whitespace or consecutive other code points, and at bytes that are not UTF-8, which count as one
// code point.
class TextCutter {
  public:
    explicit TextCutter(std::string_view text) : rest_(text) {}
    TextSlice next();

  private:
    bool must_cut_before(bool is_space) const;
    void count(bool is_space);
    TextSlice take(size_t num_bytes, bool is_utf8);

    std::string_view rest_;
    int32_t num_in_window_ = 0;
    int32_t num_in_run_ = 0;
    bool run_is_space_ = false;
};

}  // namespace k3pod
