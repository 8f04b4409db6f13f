#pragma once
// The chat format in a spelled-out form: "<|open|>think<|sep|>..." stands for control ids between
// segments of plain text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "k3pod/api/chat.h"
#include "tests/support/tiny_tokenizer.h"

namespace k3pod::testing {

const ChatWording& tiny_wording();

// Ids of a spelled-out text. Control ids by any spelling that the table has.
std::vector<int32_t> spelled(std::string_view text);

// The prompt spelled out, or the refusal after "refused: ".
std::string rendered(const ChatPrompt& prompt);

ChatMessage user(std::string content);
// With thinking on and no effort message.
ChatPrompt prompt_of(std::vector<ChatMessage> messages);

struct ParsedCall {
    std::string name;
    std::string arguments;
    bool is_complete = false;
    bool operator==(const ParsedCall&) const = default;
    friend void PrintTo(const ParsedCall& c, std::ostream* out);
};

// An answer put together from its events.
struct Parsed {
    std::string reasoning;
    int32_t num_reasoning_ends = 0;
    std::string content;
    std::vector<ParsedCall> calls{};
    int32_t num_reasoning_tokens = 0;
    bool operator==(const Parsed&) const = default;
    friend void PrintTo(const Parsed& p, std::ostream* out);
};

// Checks in passing what holds for every answer: reasoning before its end, indices from 0 on, calls
// one after the other, no empty pieces, every piece valid UTF-8.
Parsed parsed(const std::vector<int32_t>& ids, bool starts_in_think = true);
Parsed parsed(std::string_view spelled_text, bool starts_in_think = true);

bool is_utf8(std::string_view text);

}  // namespace k3pod::testing
