#pragma once
// JSON as text. The chat format keeps literals as the client wrote them (1e2 stays 1e2), so values
// are checked and copied as spans of the source instead of being converted to numbers and back.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/base/status.h"

namespace k3pod {

enum class JsonKind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

// "null", "boolean", "number", "string", "array", "object".
std::string_view json_kind_name(JsonKind kind);

// Reads one document from front to back. A method that returns false has reached the end of its
// object or array, or has failed: then every later call returns false too, and status() says what
// was found where. Borrows the text.
class JsonReader {
  public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    // What comes next, judged by its first byte; nullopt: no value starts here (fails).
    std::optional<JsonKind> peek();
    // Checks any value and gives its source without the space around it.
    bool read_value(std::string_view& source);
    bool read_string(std::string& decoded);
    // Consumes the bracket. Then next_member or next_item before each value, until false.
    bool begin_object();
    bool begin_array();
    bool next_member(std::string& key);
    bool next_item();
    // Fails unless only space is left.
    bool finish();

    Status status() const;  // Ok, or kInvalidArgument.

    // Deeper documents are refused, so that recursion over them is bounded.
    static constexpr int32_t kMaxDepth = 128;

  private:
    bool fail(std::string_view expected);
    void skip_space();
    bool at(char c) const { return pos_ < text_.size() && text_[pos_] == c; }
    bool begin(char bracket);
    // After a bracket or a value: true if another element follows, with its comma consumed.
    bool next_element(char closing_bracket);
    bool skip_scalar(JsonKind kind);
    bool skip_word(std::string_view word);
    bool skip_number();
    bool skip_digits();
    bool read_escape(std::string& decoded);
    std::optional<uint32_t> read_hex4();

    std::string_view text_;
    size_t pos_ = 0;
    int32_t depth_ = 0;
    bool just_opened_ = false;  // The last thing read was an opening bracket.
    bool failed_ = false;
    std::string error_;
};

// Appends `text` as the inside of a JSON string: non-ASCII stays as it is.
void append_json_escaped(std::string_view text, std::string& json);

}  // namespace k3pod
