#pragma once
// The structure of one answer: follows the elements that the model opens and closes, in whatever
// order it does, and turns their text into events.

#include <cstdint>
#include <string_view>
#include <vector>

#include "api/chat/argument_writer.h"
#include "api/chat/tag.h"
#include "k3pod/api/chat.h"

namespace k3pod {

// Models leave out closes, and open what cannot be opened there. So an element that opens closes
// all that it cannot stand inside; a close without its open and an open that makes no sense do
// nothing. Text between elements opens a response by itself unless it is blank; between calls it is
// dropped.
class AnswerBuilder {
  public:
    using Events = std::vector<ChatEvent>;

    explicit AnswerBuilder(bool starts_in_think)
        : place_(starts_in_think ? Place::kThink : Place::kResponse) {}

    void open(const Tag& tag, Events& events);
    void close(Element element, Events& events);
    void text(std::string_view bytes, Events& events);
    void end_message(Events& events) { leave_all(events); }
    // Generation stops wherever it is.
    void finish(Events& events);

    bool is_in_think() const { return place_ == Place::kThink; }
    int32_t num_tool_calls() const { return num_tool_calls_; }

  private:
    // Innermost open element. kMessage: none. From kTools on, each is inside the one before.
    enum class Place : uint8_t { kMessage, kThink, kResponse, kTools, kCall, kArgument };

    void begin_call(const Tag& tag, Events& events);
    void begin_argument(const Tag& tag, Events& events);
    // Close everything down to, and not including, the place in the name.
    void leave_to_call(Events& events);
    void leave_to_tools(Events& events);
    void leave_all(Events& events);
    // Emits the rest of a character that will not be completed.
    void flush(Events& events);
    void emit_text(std::string_view utf8, Events& events);
    void emit_arguments(std::string json, Events& events);

    Place place_;
    bool is_reasoning_over_ = false;
    int32_t num_tool_calls_ = 0;
    Utf8Assembler utf8_;
    ArgumentWriter arguments_;
};

}  // namespace k3pod
