#include "tokenizer/text_cutter.h"

#include "tokenizer/utf8.h"

namespace k3pod {
namespace {

constexpr int32_t kWindowLength = 400'000;
constexpr int32_t kRunLength = 25'000;

// Python's str.isspace, which the reference uses here. It has U+001C to U+001F beyond the
// White_Space of the pre-tokeniser's pattern.
bool is_space(char32_t c) {
    if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

TextSlice TextCutter::next() {
    size_t num_bytes = 0;
    while (num_bytes < rest_.size()) {
        const Utf8Step step = next_utf8(rest_.substr(num_bytes));
        const bool is_utf8 = step.kind == Utf8Step::Kind::kCharacter;
        const bool space = is_utf8 && is_space(step.code_point);
        if (num_bytes > 0 && (!is_utf8 || must_cut_before(space))) break;
        count(space);
        num_bytes += static_cast<size_t>(step.num_bytes);
        if (!is_utf8) return take(num_bytes, false);
    }
    return take(num_bytes, true);
}

bool TextCutter::must_cut_before(bool is_space) const {
    return num_in_window_ == kWindowLength ||
           (num_in_run_ == kRunLength && is_space == run_is_space_);
}

void TextCutter::count(bool is_space) {
    if (num_in_window_ == kWindowLength) num_in_window_ = num_in_run_ = 0;
    if (num_in_run_ == kRunLength || is_space != run_is_space_) num_in_run_ = 0;
    run_is_space_ = is_space;
    ++num_in_window_;
    ++num_in_run_;
}

TextSlice TextCutter::take(size_t num_bytes, bool is_utf8) {
    const TextSlice slice{rest_.substr(0, num_bytes), is_utf8};
    rest_.remove_prefix(num_bytes);
    return slice;
}

}  // namespace k3pod
