#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/chat/chat_helpers.h"

namespace k3pod::testing {
namespace {

class RandomAnswer {
  public:
    explicit RandomAnswer(uint32_t seed) : random_(seed) {}

    // Ids of plain text, markers, headers and whole elements in any order.
    std::vector<int32_t> ids(int32_t num_parts) {
        std::vector<int32_t> all;
        for (int32_t i = 0; i < num_parts; ++i) {
            const std::vector<int32_t> part = next();
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  private:
    std::vector<int32_t> next() {
        // Headers more often than chance would make them, or no call would ever begin.
        static const std::vector<std::string> kParts = {
            "<|open|>",
            "<|close|>",
            "<|sep|>",
            "<|end_of_msg|>",
            "<|open|>think<|sep|>",
            "<|close|>think<|sep|>",
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            "<|open|>tools<|sep|>",
            "<|close|>tools<|sep|>",
            "<|open|>call tool=\"f\" index=\"1\"<|sep|>",
            "<|open|>call tool=\"g\"",
            "<|close|>call<|sep|>",
            "<|open|>argument key=\"k\" type=\"string\"<|sep|>",
            "<|open|>argument key=\"n\" type=\"number\"<|sep|>",
            "<|open|>argument key=\"o\" type=\"object\"",
            "<|close|>argument<|sep|>",
            "<|close|>message<|sep|>",
            "12",
            "{\"a\":",
            "🎉",
        };
        if (below(3) != 0) return spelled(kParts[below(static_cast<uint32_t>(kParts.size()))]);
        int32_t id = -1;
        // Any id but those whose bytes could spell a marker between them.
        do {
            id = static_cast<int32_t>(below(2304));
        } while (id < 2048 && tiny_tokenizer().bytes(id).find('|') != std::string_view::npos);
        return {id};
    }

    std::mt19937 random_;
};

TEST(ChatOutputProperty, any_ids_give_clean_text_and_complete_calls_are_json) {
    constexpr uint32_t kSeed = 314159;
    RandomAnswer random(kSeed);
    int32_t num_complete_calls = 0;
    for (int round = 0; round < 4000; ++round) {
        SCOPED_TRACE(::testing::Message() << "round " << round << ", seed " << kSeed);
        const std::vector<int32_t> ids = random.ids(static_cast<int32_t>(random.below(60)));
        const Parsed answer = parsed(ids, random.below(2) == 0);  // Checks order and UTF-8.
        std::string shown = answer.reasoning + answer.content;
        for (const ParsedCall& call : answer.calls) {
            shown += call.name + call.arguments;
            if (!call.is_complete) continue;
            ++num_complete_calls;
            ASSERT_TRUE(nlohmann::json::accept(call.arguments)) << call.arguments;
        }
        ASSERT_EQ(shown.find("<|"), std::string::npos) << shown;
        ASSERT_EQ(shown.find("|>"), std::string::npos) << shown;
        if (HasFailure()) return;
    }
    EXPECT_GT(num_complete_calls, 1000) << "the generator makes too few calls to test anything";
}

TEST(ChatOutputProperty, ids_outside_the_vocabulary_do_nothing) {
    EXPECT_EQ(parsed({-1, 2304, 1 << 30, 220, -2'000'000'000}).reasoning, " ");
}

// ---- there and back ----

struct Turn {
    std::string why;
    ChatMessage message;
    bool thinking = true;
    friend void PrintTo(const Turn& t, std::ostream* out) { *out << t.why; }
};

class RoundTrip : public ::testing::TestWithParam<Turn> {};

// Renders the turn as history, and takes what stands between the opening of its first element and
// the end of the message as generated.
std::vector<int32_t> generated_ids(const Turn& turn) {
    ChatPrompt prompt = prompt_of({user("q"), turn.message});
    prompt.thinking = turn.thinking;
    const auto history = render_chat(prompt, tiny_wording(), tiny_tokenizer()).value();
    prompt.messages.pop_back();
    const auto before = render_chat(prompt, tiny_wording(), tiny_tokenizer()).value();
    const auto begin = history.begin() + std::ssize(before);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), history.begin()));
    return {begin, history.end()};
}

TEST_P(RoundTrip, a_rendered_turn_parses_back) {
    const ChatMessage& message = GetParam().message;
    // The history is followed by an opened answer, which has no text.
    const Parsed answer = parsed(generated_ids(GetParam()), GetParam().thinking);
    EXPECT_EQ(answer.reasoning, GetParam().thinking ? message.reasoning : "");
    EXPECT_EQ(answer.content, message.content);
    ASSERT_EQ(answer.calls.size(), message.tool_calls.size());
    for (size_t i = 0; i < answer.calls.size(); ++i) {
        EXPECT_EQ(answer.calls[i].name, message.tool_calls[i].name);
        EXPECT_EQ(answer.calls[i].arguments, message.tool_calls[i].arguments_json);
        EXPECT_TRUE(answer.calls[i].is_complete);
    }
}

ChatMessage turn(std::string content, std::string reasoning, std::vector<ChatToolCall> calls = {}) {
    return {.role = ChatRole::kAssistant,
            .content = std::move(content),
            .reasoning = std::move(reasoning),
            .tool_calls = std::move(calls)};
}

INSTANTIATE_TEST_SUITE_P(
    Turns, RoundTrip,
    ::testing::Values(
        Turn{"text", turn("Hello 日本語 🎉\n", "because\n\n")}, Turn{"empty", turn("", "")},
        Turn{"thinking off", turn("Hi", "dropped"), false},
        Turn{"marker text", turn("<|close|>response<|sep|>", "<|close|>think<|sep|>")},
        Turn{"one call", turn("", "r", {{"1", "get_weather", R"({"city":"Oslo"})"}})},
        Turn{"all types", turn("c", "r",
                               {{"1", "f",
                                 R"({"s":"\"\\\n🎉 <|close|>","n":1e2,"o":{ "a" : [1] },"l":[],)"
                                 R"("t":false,"z":null,"e":""})"},
                                {"2", "g", "{}"}})},
        Turn{"odd names", turn("", "", {{"1", "a \"&\" b", R"({" odd  key\"&":"v"})"}})},
        Turn{"no object", turn("", "", {{"1", "f", "[1, 2]"}, {"2", "f", "{\"broken\":"}})}));

}  // namespace
}  // namespace k3pod::testing
