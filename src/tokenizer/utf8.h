#pragma once
// UTF-8, one step at a time, by the rules of the WHATWG decoder.

#include <cstdint>
#include <string_view>

namespace k3pod {

struct Utf8Step {
    enum class Kind : uint8_t {
        kCharacter,
        kInvalid,     // These bytes are no character, whatever follows.
        kUnfinished,  // The text ends inside a character that more bytes could complete.
    };
    Kind kind;
    int32_t num_bytes;    // Of the character, or of the maximal invalid part: at least 1.
    char32_t code_point;  // 0 unless kCharacter.
};

// The first step of `text`, which is not empty.
Utf8Step next_utf8(std::string_view text);

}  // namespace k3pod
