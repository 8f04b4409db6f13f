#pragma once
// K3's pre-tokeniser: splits text into the pieces that BPE works on, each on its own.

#include <memory>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

class PreTokenizer {
  public:
    // Compiles the pattern, with PCRE2's JIT where there is one. Fails only if PCRE2 lacks Unicode.
    static Result<PreTokenizer> create();
    PreTokenizer(PreTokenizer&&) noexcept;
    PreTokenizer& operator=(PreTokenizer&&) noexcept;
    ~PreTokenizer();

    // Replaces `pieces` by those of `text`, in order and without gaps, as views into it. `text` is
    // valid UTF-8. Stack and heap use do not grow with the text beyond `pieces`. Thread-safe.
    void split(std::string_view text, std::vector<std::string_view>& pieces) const;

  private:
    struct Pattern;
    explicit PreTokenizer(std::unique_ptr<Pattern> pattern);
    std::unique_ptr<Pattern> pattern_;
};

}  // namespace k3pod
