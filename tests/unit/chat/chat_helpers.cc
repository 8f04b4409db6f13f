#include "tests/unit/chat/chat_helpers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

namespace k3pod::testing {
namespace {

// The first control spelling in `text`; its id is -1 when there is none.
struct Control {
    size_t pos = std::string_view::npos;
    int32_t id = -1;
};

Control find_control(std::string_view text) {
    Control first;
    for (const std::string_view spelling :
         {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]", "[PAD]"}) {
        const size_t pos = text.find(spelling);
        if (pos < first.pos) first = {pos, *tiny_tokenizer().control_id(spelling)};
    }
    return first;
}

// Applies events to an answer and checks their order.
class EventCheck {
  public:
    explicit EventCheck(Parsed& answer) : answer_(answer) {}

    void operator()(const ReasoningDelta& e) {
        EXPECT_EQ(answer_.num_reasoning_ends, 0) << "reasoning after its end: " << e.text;
        EXPECT_TRUE(answer_.content.empty() && answer_.calls.empty());
        add(e.text, answer_.reasoning);
    }
    void operator()(const ReasoningEnd&) { ++answer_.num_reasoning_ends; }
    void operator()(const ContentDelta& e) {
        EXPECT_FALSE(is_in_call_) << "content inside a call: " << e.text;
        add(e.text, answer_.content);
    }
    void operator()(const ToolCallBegin& e) {
        EXPECT_FALSE(is_in_call_);
        EXPECT_EQ(e.index, static_cast<int32_t>(answer_.calls.size()));
        EXPECT_TRUE(is_utf8(e.name));
        EXPECT_NE(e.name, "");
        answer_.calls.push_back({e.name, "", false});
        is_in_call_ = true;
    }
    void operator()(const ToolCallArguments& e) {
        ASSERT_TRUE(is_in_call_);
        EXPECT_EQ(e.index + 1, static_cast<int32_t>(answer_.calls.size()));
        add(e.json, answer_.calls.back().arguments);
    }
    void operator()(const ToolCallEnd& e) {
        ASSERT_TRUE(is_in_call_);
        EXPECT_EQ(e.index + 1, static_cast<int32_t>(answer_.calls.size()));
        answer_.calls.back().is_complete = true;
        is_in_call_ = false;
    }

  private:
    static void add(const std::string& piece, std::string& whole) {
        EXPECT_NE(piece, "");
        EXPECT_TRUE(is_utf8(piece)) << piece;
        whole += piece;
    }

    Parsed& answer_;
    bool is_in_call_ = false;
};

}  // namespace

const ChatWording& tiny_wording() {
    static const ChatWording wording =
        read_chat_wording(K3POD_SOURCE_DIR "/models/k3-tiny").value();
    return wording;
}

std::vector<int32_t> spelled(std::string_view text) {
    std::vector<int32_t> ids;
    while (!text.empty()) {
        const Control control = find_control(text);
        tiny_tokenizer().encode(text.substr(0, control.pos), ids);
        if (control.id < 0) break;
        ids.push_back(control.id);
        text.remove_prefix(control.pos + tiny_tokenizer().bytes(control.id).size());
    }
    return ids;
}

std::string rendered(const ChatPrompt& prompt) {
    const auto ids = render_chat(prompt, tiny_wording(), tiny_tokenizer());
    return ids ? decode_tiny(*ids) : "refused: " + ids.status().to_string();
}

ChatMessage user(std::string content) {
    return {.role = ChatRole::kUser, .content = std::move(content)};
}

ChatPrompt prompt_of(std::vector<ChatMessage> messages) {
    return {.messages = std::move(messages)};
}

void PrintTo(const ParsedCall& c, std::ostream* out) {
    *out << c.name << "(" << c.arguments << (c.is_complete ? ")" : "...");
}

void PrintTo(const Parsed& p, std::ostream* out) {
    *out << "reasoning (" << p.num_reasoning_tokens << " ids, " << p.num_reasoning_ends
         << " ends): " << p.reasoning << "\ncontent: " << p.content;
    for (const ParsedCall& call : p.calls) PrintTo(call, &(*out << "\ncall: "));
}

Parsed parsed(const std::vector<int32_t>& ids, bool starts_in_think) {
    Parsed answer;
    EventCheck check(answer);
    ChatOutputParser parser(tiny_tokenizer(), starts_in_think);
    std::vector<ChatEvent> events;
    for (const int32_t id : ids) {
        parser.push(id, events);
        answer.num_reasoning_tokens += parser.in_reasoning() ? 1 : 0;
    }
    parser.finish(events);
    for (const ChatEvent& event : events) std::visit(check, event);
    EXPECT_EQ(parser.num_tool_calls(), static_cast<int32_t>(answer.calls.size()));
    if (starts_in_think) {
        EXPECT_EQ(answer.num_reasoning_ends, 1);
    }
    return answer;
}

Parsed parsed(std::string_view spelled_text, bool starts_in_think) {
    return parsed(spelled(spelled_text), starts_in_think);
}

bool is_utf8(std::string_view text) {
    // An assembler passes valid text through and replaces the rest.
    Utf8Assembler assembler;
    return assembler.push(text) == text && assembler.finish().empty();
}

}  // namespace k3pod::testing
