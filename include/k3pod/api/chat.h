#pragma once
// K3's chat format (XTML), both ways: messages to token ids, generated ids to reasoning, content
// and tool calls. Segment by segment: only the four structural markers are control ids, everything
// else is plain BPE encoded on its own, so text from users can never become structure. JSON values
// travel as their source text, because the format keeps number literals as the client wrote them.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/tokenizer/tokenizer.h"

namespace k3pod {

// The wording that the format adds; read from DIR/chat_format.json, none is compiled in.
struct ChatWording {
    std::string tool_declare;          // has {tools}
    std::string tool_declare_dynamic;  // the same for a system message's tools; may be absent
    std::string thinking_effort;       // has {effort}
    std::string tool_choice_required, tool_choice_none;
    std::string response_format_json_object;
    std::string response_format_json_schema;  // has {schema}
};
// kNotFound or kInvalidArgument name the file, and the text that is missing or lacks its
// placeholder.
Result<ChatWording> read_chat_wording(const std::filesystem::path& dir);

enum class ChatRole : uint8_t { kSystem, kUser, kAssistant, kTool };

struct ChatToolCall {
    std::string id{};  // may be empty
    std::string name{};
    std::string arguments_json{};  // source text as the client sent it
};

struct ChatMessage {
    ChatRole role = ChatRole::kUser;  // "developer" maps to kSystem
    std::string name{};               // optional
    std::string content{};            // text parts joined; empty when null
    std::string reasoning{};          // assistant history
    std::vector<ChatToolCall> tool_calls{};
    std::string tool_call_id{};  // role tool
    std::string tools_json{};    // system message that declares tools (no content); empty: none
};

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

struct ChatPrompt {
    std::vector<ChatMessage> messages{};
    std::string tools_json{};  // array as sent by the client; empty: none
    ToolChoice tool_choice = ToolChoice::kAuto;
    bool thinking = true;
    std::string effort{};       // "low", "high", "max"; empty: no effort message
    bool json_object = false;   // response_format
    std::string json_schema{};  // response_format json_schema: the schema's source text
};

// kInvalidArgument names the place ("messages[3]", "tools[0]") and what is wrong there: JSON that
// does not parse or is nested beyond 128 levels, a tool result without a name, a tool declared
// twice, an effort that the model does not know.
Result<std::vector<int32_t>> render_chat(const ChatPrompt& prompt, const ChatWording& wording,
                                         const Tokenizer& tokenizer);

// ---- output ----

struct ReasoningDelta {
    std::string text;
};
struct ReasoningEnd {};  // the boundary, once, if there was thinking
struct ContentDelta {
    std::string text;
};
struct ToolCallBegin {
    int32_t index;  // from 0
    std::string name;
};
struct ToolCallArguments {
    int32_t index;
    std::string json;  // a piece; from Begin to End they join to one JSON object
};
struct ToolCallEnd {
    int32_t index;
};
using ChatEvent = std::variant<ReasoningDelta, ReasoningEnd, ContentDelta, ToolCallBegin,
                               ToolCallArguments, ToolCallEnd>;

// Parses generated ids by id, never by text. Tolerates every way in which thinking can end:
// canonical close; close think without sep; open response; open tools or a call; close message; a
// stop id; the length limit. Markers and tag headers never reach an event, whatever else is missing
// or misplaced. String arguments stream; an argument of another type is one piece, verbatim if it
// is JSON and as a string if not. Only the `json` element, whole arguments as raw text, is passed
// on unchecked. One per choice, not thread-safe. Borrows the tokenizer.
class ChatOutputParser {
  public:
    // starts_in_think: the prompt ended inside <think> (thinking on) or inside <response>.
    ChatOutputParser(const Tokenizer& tokenizer, bool starts_in_think);
    ~ChatOutputParser();
    // Events that this id completes, in order, appended. Text is valid UTF-8.
    void push(int32_t id, std::vector<ChatEvent>& events);
    // End of generation: flushes held text (an unfinished character as U+FFFD); an unfinished tool
    // call's arguments stay as they are, without ToolCallEnd (finish_reason "length" tells the
    // client). Nothing may be pushed after it.
    void finish(std::vector<ChatEvent>& events);
    // The id last pushed counts as reasoning: thinking had not ended with it.
    bool in_reasoning() const;
    int32_t num_tool_calls() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace k3pod
