#pragma once
// Turns the elements inside one call into the JSON text of its arguments, piece by piece.

#include <cstdint>
#include <string>
#include <string_view>

namespace k3pod {

// Every method returns the JSON that can go out now, often none. A string goes out as it arrives. A
// literal of another type waits for its end: it goes out verbatim if it is JSON, and as a string if
// the model wrote something else, so that the arguments of a complete call are always valid JSON.
// The exception is the `json` element, the whole arguments as raw text.
class ArgumentWriter {
  public:
    std::string begin_argument(std::string_view key, std::string_view type);
    void begin_json();
    std::string text(std::string_view utf8);
    std::string end_argument();
    std::string end_call();
    // Generation stops here: a literal that waits, as far as it got.
    std::string cut();

  private:
    enum class Form : uint8_t { kNothing, kObject, kRaw };
    enum class Value : uint8_t { kDropped, kString, kLiteral, kRaw };

    Form form_ = Form::kNothing;  // Of what went out so far.
    Value value_ = Value::kDropped;
    std::string literal_;
};

}  // namespace k3pod
