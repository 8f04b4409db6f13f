#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/chat/chat_helpers.h"

namespace k3pod::testing {
namespace {

using Calls = std::vector<ParsedCall>;

constexpr std::string_view kEnd = "<|close|>message<|sep|><|end_of_msg|>";
constexpr std::string_view kOslo =
    "<|open|>call tool=\"get_weather\" index=\"1\"<|sep|>"
    "<|open|>argument key=\"city\" type=\"string\"<|sep|>Oslo<|close|>argument<|sep|>"
    "<|close|>call<|sep|>";

std::string joined(std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return all;
}

Calls oslo() {
    return {{"get_weather", R"({"city":"Oslo"})", true}};
}

// Reasoning, content and calls of an answer that begins inside think.
void expect_answer(std::string_view spelled_text, std::string_view reasoning,
                   std::string_view content, const Calls& calls = {}) {
    const Parsed answer = parsed(spelled_text);
    EXPECT_EQ(answer.reasoning, reasoning) << spelled_text;
    EXPECT_EQ(answer.content, content) << spelled_text;
    EXPECT_EQ(answer.calls, calls) << spelled_text;
    EXPECT_EQ(answer.num_reasoning_ends, 1) << spelled_text;
}

// ---- the canonical form ----

TEST(ChatOutput, canonical_answer) {
    expect_answer(
        joined({"I think.<|close|>think<|sep|><|open|>response<|sep|>Hi 🎉<|close|>response"
                "<|sep|>",
                kEnd}),
        "I think.", "Hi 🎉");
}

TEST(ChatOutput, thinking_off_begins_in_the_response) {
    const Parsed answer = parsed(joined({"Hi<|close|>response<|sep|>", kEnd}), false);
    EXPECT_EQ(answer.content, "Hi");
    EXPECT_EQ(answer.num_reasoning_ends, 0);
    EXPECT_EQ(answer.num_reasoning_tokens, 0);
}

TEST(ChatOutput, golden_continuations) {
    std::ifstream in(K3POD_SOURCE_DIR "/tests/golden/k3-tiny/golden.json");
    const auto answer_of = [cases = nlohmann::json::parse(in).at("cases")](std::string_view name) {
        for (const auto& golden : cases) {
            if (golden.at("name") != name) continue;
            return parsed(golden.at("greedy_ids").get<std::vector<int32_t>>(),
                          golden.at("thinking").get<bool>());
        }
        return Parsed{};
    };
    EXPECT_EQ(answer_of("add").reasoning, "ones: 7 + 8 = 15. tens: 4 + 3 + 1 = 8. so 85.");
    EXPECT_EQ(answer_of("add").content, "47 + 38 = 85.");
    EXPECT_EQ(answer_of("no_thinking").content, "13 + 21 = 34.");
    EXPECT_EQ(answer_of("unicode").content, "日本語 🎉 zebra");
    EXPECT_EQ(answer_of("tool_call").calls, oslo());
    EXPECT_EQ(answer_of("tool_call").content, "");
    EXPECT_EQ(answer_of("number_argument").calls,
              (Calls{{"set_timer", R"({"minutes":12})", true}}));
}

TEST(ChatOutput, reasoning_counts_ids_until_the_boundary) {
    // "I think." and <close>think; the <sep> ends it.
    const auto num_ids =
        static_cast<int32_t>(encode_tiny("I think.").size() + 1 + encode_tiny("think").size());
    EXPECT_EQ(parsed("I think.<|close|>think<|sep|><|open|>response<|sep|>Hi").num_reasoning_tokens,
              num_ids);
}

// ---- every way in which thinking can end ----

TEST(ChatOutput, think_ends_by_its_close_without_sep) {
    // sglang #32567: the whole answer landed in reasoning.
    expect_answer(joined({"r<|close|>think<|open|>response<|sep|>c<|close|>response<|sep|>", kEnd}),
                  "r", "c");
    expect_answer("r<|close|>thinkThe answer", "r", "The answer");
}

TEST(ChatOutput, think_ends_by_an_opening_response) {
    // vllm #53246: the think close is missing.
    expect_answer(joined({"r<|open|>response<|sep|>c<|close|>response<|sep|>", kEnd}), "r", "c");
}

TEST(ChatOutput, think_ends_by_opening_tools) {
    // vllm #54273: reasoning never ended, and the terminator leaked.
    expect_answer(joined({"r<|open|>tools<|sep|>", kOslo, "<|close|>tools<|sep|>", kEnd}), "r", "",
                  oslo());
}

TEST(ChatOutput, think_ends_by_opening_a_call) {
    expect_answer(joined({"r", kOslo, kEnd}), "r", "", oslo());
}

TEST(ChatOutput, think_ends_by_the_close_of_the_message) {
    expect_answer("r<|close|>message<|sep|><|end_of_msg|>", "r", "");
}

TEST(ChatOutput, think_ends_by_a_stop_id) {
    expect_answer("r<|end_of_msg|>", "r", "");
    expect_answer("r[EOS]", "r", "");
}

TEST(ChatOutput, think_ends_by_the_length_limit) {
    expect_answer("r", "r", "");
    expect_answer("", "", "");
    expect_answer("r<|close|>thi", "r", "");
}

TEST(ChatOutput, text_after_thinking_is_content_even_without_an_open_response) {
    expect_answer("r<|close|>think<|sep|>\n\nIt is 4.\n", "r", "It is 4.\n");
    expect_answer("r<|close|>think<|sep|>\n<|open|>response<|sep|>\nc", "r", "\nc");
}

// ---- the end of the response ----

TEST(ChatOutput, response_ends_by_any_of_its_ends) {
    constexpr std::string_view kStart = "r<|close|>think<|sep|><|open|>response<|sep|>c";
    expect_answer(joined({kStart, "<|close|>response<|sep|>", kEnd}), "r", "c");
    // vllm #51399: the message's close was shown where the response's is absent.
    expect_answer(joined({kStart, kEnd}), "r", "c");
    expect_answer(joined({kStart, "<|end_of_msg|>"}), "r", "c");
    expect_answer(joined({kStart, "[EOS]"}), "r", "c");
    expect_answer(joined({kStart, "<|open|>tools<|sep|>", kOslo}), "r", "c", oslo());
    expect_answer(joined({kStart, "<|close|>response<|open|>tools<|open|>", kOslo.substr(8)}), "r",
                  "c", oslo());
}

TEST(ChatOutput, content_is_whole_beside_calls) {
    // sglang #34214: streamed content was cut short where calls follow.
    expect_answer(
        joined({"<|close|>think<|sep|><|open|>response<|sep|>I will look it up 🎉.<|close|>"
                "response<|sep|><|open|>tools<|sep|>",
                kOslo, "<|close|>tools<|sep|>", kEnd}),
        "", "I will look it up 🎉.", oslo());
}

// ---- markers never show ----

TEST(ChatOutput, orphan_closes_are_dropped) {
    expect_answer(
        "a<|close|>response<|sep|>b<|close|>call<|sep|><|close|>tools<|sep|>"
        "<|close|>argument<|sep|>c<|close|>think<|sep|><|close|>think<|sep|>"
        "<|open|>response<|sep|>d<|close|>think<|sep|>e",
        "abc", "de");
}

TEST(ChatOutput, unknown_tags_are_dropped) {
    expect_answer(
        "a<|open|>aside kind=\"x\"<|sep|>b<|close|>aside<|sep|>c<|close|>reasoning<|sep|>d", "abcd",
        "");
}

TEST(ChatOutput, lone_markers_and_other_control_ids_are_dropped) {
    expect_answer("a<|sep|>b[PAD]c<|sep|><|sep|><|open|><|sep|>d<|close|><|close|>e", "abcd", "");
}

TEST(ChatOutput, text_that_spells_markers_is_text) {
    // Plain BPE, as a model writes it that explains its own format.
    const std::string text = "Use <|close|>think<|sep|> and [EOS].";
    std::vector<int32_t> ids = encode_tiny(text);
    EXPECT_EQ(parsed(ids).reasoning, text);
    std::vector<int32_t> call = spelled(
        "<|open|>call tool=\"say\" index=\"1\"<|sep|><|open|>argument key=\"text\" type=\"string\""
        "<|sep|>");
    call.insert(call.end(), ids.begin(), ids.end());
    const std::vector<int32_t> end = spelled("<|close|>argument<|sep|><|close|>call<|sep|>");
    call.insert(call.end(), end.begin(), end.end());
    EXPECT_EQ(parsed(call).calls, (Calls{{"say", "{\"text\":\"" + text + "\"}", true}}));
}

TEST(ChatOutput, a_stop_in_the_middle_of_a_marker_shows_nothing_of_it) {
    // smg #2203: a stop word left "ep|>" behind. Here every prefix of an answer is cut off.
    const std::string whole =
        joined({"r r<|close|>think<|sep|><|open|>response<|sep|>c c<|close|>response<|sep|>"
                "<|open|>tools<|sep|>",
                kOslo, "<|close|>tools<|sep|>", kEnd});
    const std::vector<int32_t> ids = spelled(whole);
    for (size_t n = 0; n <= ids.size(); ++n) {
        const Parsed answer = parsed(std::vector<int32_t>(
            ids.begin(), ids.begin() + std::ssize(ids) - static_cast<int64_t>(n)));
        EXPECT_EQ(std::string("r r").find(answer.reasoning), 0u) << answer.reasoning;
        EXPECT_EQ(std::string("c c").find(answer.content), 0u) << answer.content;
        for (const ParsedCall& call : answer.calls) {
            EXPECT_EQ(std::string(R"({"city":"Oslo"})").find(call.arguments), 0u) << call.arguments;
            EXPECT_EQ(call.is_complete, call.arguments.ends_with('}'));
        }
    }
}

TEST(ChatOutput, ids_after_the_end_of_the_message_are_content_without_markers) {
    // smg #2421: with ignore_eos the terminator came back as text.
    expect_answer(joined({"r<|close|>think<|sep|><|open|>response<|sep|>c<|close|>response<|sep|>",
                          kEnd, "<|open|>message role=\"user\"<|sep|>more", kEnd}),
                  "r", "cmore");
}

TEST(ChatOutput, a_second_thought_is_content) {
    expect_answer("r<|close|>think<|sep|><|open|>think<|sep|>s<|close|>think<|sep|>", "r", "s");
    expect_answer("<|open|>think<|sep|>r<|open|>think<|sep|>s", "rs", "");
}

TEST(ChatOutput, a_model_may_think_though_thinking_is_off) {
    const Parsed answer =
        parsed("<|open|>think<|sep|>r<|close|>think<|sep|><|open|>response<|sep|>c",
               /*starts_in_think=*/false);
    EXPECT_EQ(answer.reasoning, "r");
    EXPECT_EQ(answer.num_reasoning_ends, 1);
    EXPECT_EQ(answer.content, "c");
}

TEST(ChatOutput, a_header_without_end_becomes_text_again) {
    const std::string prose(2000, 'a');
    EXPECT_EQ(parsed("<|open|>" + prose).reasoning, prose);
    EXPECT_EQ(parsed("<|close|>" + prose).reasoning, prose);
}

// ---- calls ----

std::string call_of(std::string_view inside) {
    return joined({"<|open|>call tool=\"f\" index=\"1\"<|sep|>", inside, "<|close|>call<|sep|>"});
}

std::string argument(std::string_view key, std::string_view type, std::string_view text) {
    return joined({"<|open|>argument key=\"", key, "\" type=\"", type, "\"<|sep|>", text,
                   "<|close|>argument<|sep|>"});
}

std::string arguments_of(std::string_view spelled_text) {
    const Parsed answer = parsed(spelled_text);
    if (answer.calls.size() != 1 || !answer.calls[0].is_complete) return "no complete call";
    return answer.calls[0].arguments;
}

TEST(ChatOutput, arguments_of_every_type) {
    EXPECT_EQ(arguments_of(call_of(
                  argument("s", "string", "a\"\\\n\t🎉") + argument("n", "number", "1e2") +
                  argument("o", "object", "{ \"x\" : 1.0 }") + argument("l", "array", "[1, 2]") +
                  argument("t", "boolean", "true") + argument("z", "null", "null"))),
              R"({"s":"a\"\\\n\t🎉","n":1e2,"o":{ "x" : 1.0 },"l":[1, 2],"t":true,"z":null})");
}

TEST(ChatOutput, a_call_without_arguments_is_an_empty_object) {
    EXPECT_EQ(arguments_of(call_of("")), "{}");
}

TEST(ChatOutput, a_literal_that_is_not_json_becomes_a_string) {
    EXPECT_EQ(
        arguments_of(call_of(argument("n", "number", "about 3") + argument("b", "boolean", "True") +
                             argument("o", "object", "{"))),
        R"({"n":"about 3","b":"True","o":"{"})");
}

TEST(ChatOutput, names_and_keys_are_unescaped) {
    const Parsed answer = parsed("<|open|>call tool=\"a&amp;quot;\" index=\"1\"<|sep|>" +
                                 argument("k&quot;&amp;", "string", "v") + "<|close|>call<|sep|>");
    EXPECT_EQ(answer.calls, (Calls{{"a&quot;", R"({"k\"&":"v"})", true}}));
}

TEST(ChatOutput, the_json_element_is_passed_on_raw) {
    EXPECT_EQ(arguments_of(
                  call_of("<|open|>json type=\"object\"<|sep|>{ \"a\": 1 }<|close|>json<|sep|>")),
              "{ \"a\": 1 }");
    EXPECT_EQ(arguments_of(call_of("<|open|>json type=\"object\"<|sep|>[1<|close|>json<|sep|>" +
                                   argument("k", "string", "late"))),
              "[1");
    EXPECT_EQ(arguments_of(call_of("<|open|>json type=\"object\"<|sep|><|close|>json<|sep|>")),
              "{}");
}

TEST(ChatOutput, several_calls_have_indices_in_a_row) {
    EXPECT_EQ(
        parsed("r<|open|>tools<|sep|>" + call_of("") + " " + std::string(kOslo) + call_of("") +
               "<|close|>tools<|sep|>")
            .calls,
        (Calls{{"f", "{}", true}, {"get_weather", R"({"city":"Oslo"})", true}, {"f", "{}", true}}));
}

TEST(ChatOutput, missing_closes_inside_a_call_are_supplied) {
    const std::string open_argument = "<|open|>argument key=\"a\" type=\"string\"<|sep|>x";
    EXPECT_EQ(arguments_of("<|open|>call tool=\"f\" index=\"1\"<|sep|>" + open_argument +
                           "<|close|>call<|sep|>"),
              R"({"a":"x"})");
    EXPECT_EQ(arguments_of(call_of(open_argument + argument("b", "number", "2"))),
              R"({"a":"x","b":2})");
    for (const std::string_view end : {"<|close|>tools<|sep|>", "<|close|>message<|sep|>",
                                       "<|end_of_msg|>", "[EOS]", "<|open|>response<|sep|>"}) {
        EXPECT_EQ(arguments_of(
                      joined({"<|open|>call tool=\"f\" index=\"1\"<|sep|>", open_argument, end})),
                  R"({"a":"x"})")
            << end;
    }
}

TEST(ChatOutput, missing_seps_inside_a_call_are_supplied) {
    EXPECT_EQ(arguments_of("<|open|>call tool=\"f\" index=\"1\"<|open|>argument key=\"a\" "
                           "type=\"string\"x y<|close|>argument<|close|>call<|end_of_msg|>"),
              R"({"a":"x y"})");
}

TEST(ChatOutput, what_is_no_argument_is_dropped_from_a_call) {
    EXPECT_EQ(arguments_of(call_of(" stray " + argument("a", "number", "1") + "\n")), R"({"a":1})");
    // A call without a name cannot be made, and arguments without a call belong nowhere.
    EXPECT_EQ(parsed("<|open|>call index=\"1\"<|sep|>" + argument("a", "number", "1") +
                     "<|close|>call<|sep|>")
                  .calls,
              Calls{});
    expect_answer("r" + argument("a", "number", "1"), "r1", "");
}

TEST(ChatOutput, arguments_cut_by_the_length_limit_stay_as_they_are) {
    // vllm #37937: an index error when a streamed call meets max_tokens.
    const auto cut = [](std::string_view inside) {
        const Parsed answer =
            parsed("<|open|>call tool=\"f\" index=\"1\"<|sep|>" + std::string(inside));
        EXPECT_EQ(answer.calls.size(), 1u);
        EXPECT_FALSE(answer.calls.at(0).is_complete);
        return answer.calls.at(0).arguments;
    };
    EXPECT_EQ(cut(""), "");
    EXPECT_EQ(cut("<|open|>argument key=\"a"), "");
    EXPECT_EQ(cut("<|open|>argument key=\"a\" type=\"string\"<|sep|>"), R"({"a":")");
    EXPECT_EQ(cut("<|open|>argument key=\"a\" type=\"string\"<|sep|>Os"), R"({"a":"Os)");
    EXPECT_EQ(cut("<|open|>argument key=\"a\" type=\"number\"<|sep|>12"), R"({"a":12)");
    EXPECT_EQ(cut(argument("a", "number", "12")), R"({"a":12)");
}

// ---- streaming ----

// Events of one more id, as text.
std::string step(ChatOutputParser& parser, int32_t id) {
    std::vector<ChatEvent> events;
    parser.push(id, events);
    std::string text;
    for (const ChatEvent& event : events) {
        if (const auto* e = std::get_if<ToolCallBegin>(&event)) text += "begin " + e->name + ";";
        if (const auto* e = std::get_if<ToolCallArguments>(&event)) text += e->json + ";";
        if (std::holds_alternative<ToolCallEnd>(event)) text += "end;";
        if (const auto* e = std::get_if<ReasoningDelta>(&event)) text += e->text + ";";
        if (std::holds_alternative<ReasoningEnd>(event)) text += "over;";
    }
    return text;
}

TEST(ChatOutput, string_arguments_stream_as_they_arrive) {
    ChatOutputParser parser(tiny_tokenizer(), true);
    std::vector<std::string> steps;
    for (const int32_t id : spelled(joined({"r", kOslo}))) {
        if (std::string text = step(parser, id); !text.empty()) steps.push_back(std::move(text));
    }
    EXPECT_EQ(steps, (std::vector<std::string>{"r;", "over;begin get_weather;", "{\"city\":\";",
                                               "O;", "s;", "lo;", "\";", "};end;"}));
}

TEST(ChatOutput, a_split_character_waits_inside_a_string_argument) {
    ChatOutputParser parser(tiny_tokenizer(), true);
    for (const int32_t id :
         spelled("<|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" "
                 "type=\"string\"<|sep|>")) {
        step(parser, id);
    }
    const std::vector<int32_t> party = encode_tiny("🎉");
    ASSERT_EQ(party.size(), 2u);
    EXPECT_EQ(step(parser, party[0]), "");
    EXPECT_EQ(step(parser, party[1]), "🎉;");
    EXPECT_EQ(step(parser, party[0]), "");
    EXPECT_EQ(step(parser, 2052), "");
    for (const int32_t id : encode_tiny("argument")) EXPECT_EQ(step(parser, id), "");
    EXPECT_EQ(step(parser, 2053), "\uFFFD;\";");
}

TEST(ChatOutput, a_character_cut_by_the_length_limit_is_one_replacement) {
    std::vector<int32_t> ids = encode_tiny("x🎉");
    ids.pop_back();
    EXPECT_EQ(parsed(ids).reasoning, "x\uFFFD");
}

}  // namespace
}  // namespace k3pod::testing
