#pragma once
// Writes a prompt as segments: control ids for the structural markers, and plain text of which
// every piece is encoded on its own, so that no token crosses the border between structure and
// text.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {

class SegmentWriter {
  public:
    struct Attribute {
        std::string_view name;
        std::string_view value;  // Unescaped.
    };

    // Appends to `ids`. Borrows both.
    SegmentWriter(const Tokenizer& tokenizer, std::vector<int32_t>& ids)
        : tokenizer_(tokenizer), ids_(ids) {}

    // <open>NAME ATTRIBUTES<sep>
    void open(std::string_view name, std::initializer_list<Attribute> attributes = {});
    // <close>NAME<sep>
    void close(std::string_view name);
    void text(std::string_view text) { tokenizer_.encode(text, ids_); }
    // An element with nothing but text inside.
    void element(std::string_view name, std::string_view content);
    // Closes the element "message" and ends the message.
    void end_message();

  private:
    const Tokenizer& tokenizer_;
    std::vector<int32_t>& ids_;
};

}  // namespace k3pod
