"""Chat answers: the rules of a stream, usage, tools, roles, thinking, formats."""

import json
import unittest

from chat_chunks import ChatChunks, check_usage, message_of
from pod import ROOT, PodCase
from questions import TOOLS

SUM = "What is 47 + 38?"
WEATHER = "How is the weather in Oslo?"
WEATHER_TOOLS = [TOOLS["get_weather"], TOOLS["set_timer"]]


def user(content):
    return {"role": "user", "content": content}


class ChatCase(PodCase):
    def stream(self, messages, num_choices=1, may_break_text=False, **fields):
        chunks = ChatChunks(self, num_choices, may_break_text)
        return chunks.read(self.pod.stream(messages, **fields))


class Streaming(ChatCase):
    def test_streamed_and_whole_answers_are_the_same(self):
        for fields in [{}, {"chat_template_kwargs": {"thinking": False}}, {"tools": WEATHER_TOOLS}]:
            for text in [SUM, WEATHER, "Repeat exactly: 日本語 🎉 zebra"]:
                with self.subTest(text, **fields):
                    whole = self.chat(text, **fields)
                    streamed = self.stream(text, **fields).choices[0]
                    self.assertEqual(message_of(streamed), whole["choices"][0]["message"])
                    self.assertEqual(streamed.finish_reason, whole["choices"][0]["finish_reason"])
                    self.assertEqual(streamed.usage, whole["usage"])
                    self.assertEqual(streamed.num_boundaries, 1 if streamed.reasoning else 0)

    def test_a_quick_stream_has_no_comments_and_headers_carry_the_usage(self):
        stream = self.pod.stream(SUM)
        answer = ChatChunks(self).read(stream)
        self.assertEqual(stream.num_comments, 0)
        headers = stream.response.headers
        self.assertEqual(int(headers["X-Msh-Usage-Prompt-Tokens"]), answer.choices[0].usage["prompt_tokens"])
        self.assertEqual(int(headers["X-Msh-Usage-Cached-Tokens"]), 0)

    def test_usage_comes_when_asked_for(self):
        for options, has_summary in [(None, False), ({}, False), ({"include_usage": False}, False),
                                     ({"include_usage": True}, True)]:
            answer = self.stream(SUM, stream_options=options)
            self.assertEqual(answer.usages, [answer.choices[0].usage] if has_summary else [], options)
            self.assertEqual(answer.summary is not None, has_summary, options)

    def test_continuous_usage_grows_and_reasoning_freezes_at_the_boundary(self):
        answer = self.stream(SUM, stream_options={"include_usage": True, "continuous_usage_stats": True})
        self.assertEqual(len(answer.usages), answer.choices[0].num_chunks + 1)
        counts = [u["completion_tokens"] for u in answer.usages]
        reasoning = [u["completion_tokens_details"]["reasoning_tokens"] for u in answer.usages]
        self.assertEqual((counts, reasoning), (sorted(counts), sorted(reasoning)))
        self.assertEqual(answer.usages[-1], answer.choices[0].usage)
        self.assertTrue(0 < reasoning[-1] < counts[-1])
        for usage in answer.usages:
            check_usage(self, usage)

    def test_stream_options_need_a_stream(self):
        error = self.refused({"messages": [user(SUM)], "stream_options": {"include_usage": True}})
        self.assertEqual(error["param"], "stream_options")

    def test_ids_of_a_stream_are_those_of_the_whole_answer(self):
        whole = self.chat(SUM, return_token_ids=True)
        streamed = self.stream(SUM, return_token_ids=True, stream_options={"include_internal_content": True})
        self.assertEqual(streamed.choices[0].internal_ids, whole["choices"][0]["token_ids"])
        streamed = self.stream(SUM, return_token_ids=True)
        self.assertEqual(streamed.choices[0].token_ids, whole["choices"][0]["token_ids"])
        prompt = self.ok("/tokenize", {"messages": [user(SUM)]})["tokens"]
        self.assertEqual(whole["prompt_token_ids"], prompt)
        self.assertEqual(len(prompt), whole["usage"]["prompt_tokens"])

    def test_cut_at_any_token_stream_and_whole_agree_and_characters_stay_whole(self):
        text = "Repeat exactly: 日本語 🎉 zebra"
        full = self.chat(text, reasoning_effort="none")["choices"][0]["message"]["content"]
        self.assertEqual(full, "日本語 🎉 zebra")
        for limit in range(1, 9):
            fields = {"max_tokens": limit, "reasoning_effort": "none"}
            whole = self.chat(text, **fields)["choices"][0]
            streamed = self.stream(text, may_break_text=True, **fields).choices[0]
            self.assertEqual(message_of(streamed), whole["message"], limit)
            # Only a character that the limit cut shows as a replacement, once, at the end.
            self.assertTrue(full.startswith(whole["message"]["content"].removesuffix("\ufffd")), whole)

    def test_three_choices_each_have_a_head_an_end_and_a_usage(self):
        for fields in [{}, {"tools": WEATHER_TOOLS}]:
            text = WEATHER if fields else "Tell me a story about a fox."
            whole = self.chat(text, n=3, seed=5, temperature=1, **fields)
            streamed = self.stream(text, 3, n=3, seed=5, temperature=1, stream_options={"include_usage": True},
                                   **fields)
            self.assertEqual([c["index"] for c in whole["choices"]], [0, 1, 2])
            self.assertEqual([message_of(c) for c in streamed.choices], [c["message"] for c in whole["choices"]])
            self.assertEqual([c.finish_reason for c in streamed.choices],
                             [c["finish_reason"] for c in whole["choices"]])
            self.assertEqual(streamed.summary, whole["usage"])
            tokens = sum(c.usage["completion_tokens"] for c in streamed.choices)
            self.assertEqual(tokens, whole["usage"]["completion_tokens"])
            if fields:
                self.assertEqual([c.finish_reason for c in streamed.choices], ["tool_calls"] * 3)
            else:
                self.assertEqual(len({c.content for c in streamed.choices}), 3, "choices are copies")


class Tools(ChatCase):
    def test_a_call_is_announced_before_its_arguments(self):
        choice = self.stream(WEATHER, tools=WEATHER_TOOLS).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.tool_calls, [{"id": "get_weather_0", "type": "function", "function": {
            "name": "get_weather", "arguments": '{"city":"Oslo"}'}}])

    def test_numbers_keep_their_type(self):
        call = self.chat("Set a timer for 12 minutes.", tools=[TOOLS["set_timer"]])["choices"][0]["message"]
        self.assertEqual(json.loads(call["tool_calls"][0]["function"]["arguments"]), {"minutes": 12})

    def test_the_limit_inside_a_call_ends_it_with_length(self):
        whole = self.chat(WEATHER, tools=WEATHER_TOOLS)["usage"]["completion_tokens"]
        reasons = set()
        for limit in range(whole - 32, whole, 4):
            choice = self.stream(WEATHER, tools=WEATHER_TOOLS, max_tokens=limit).choices[0]
            self.assertEqual(choice.finish_reason, "length")
            for call in choice.tool_calls:
                reasons.add(call["function"]["arguments"])
                self.assertTrue('{"city":"Oslo"}'.startswith(call["function"]["arguments"]))
        self.assertGreater(len(reasons), 1, "no limit cut the arguments")

    def test_required_none_and_named_choices(self):
        for choice in ["required", {"type": "function", "function": {"name": "get_weather"}}]:
            answer = self.stream(WEATHER, tools=WEATHER_TOOLS, tool_choice=choice).choices[0]
            self.assertEqual([c["function"]["name"] for c in answer.tool_calls], ["get_weather"])
        prompts = [self.ok("/tokenize", {"messages": [user(WEATHER)], "tools": WEATHER_TOOLS, "tool_choice": c})
                   for c in ["auto", "none", "required"]]
        self.assertEqual(len({tuple(p["tokens"]) for p in prompts}), 3)
        for choice in ["always", 3, {"type": "function", "function": {"name": "fly"}}, {"type": "x"}, ["auto"]]:
            self.refused({"messages": [user(WEATHER)], "tools": WEATHER_TOOLS, "tool_choice": choice})
        self.refused({"messages": [user(WEATHER)], "tool_choice": "required"})

    def test_call_ids_go_on_where_the_conversation_stopped(self):
        call = {"id": "get_weather_0", "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
        messages = [user(WEATHER), {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "get_weather_0", "content": "sunny, 21 degrees"},
                    user("How is the weather in Rome?")]
        message = self.chat(messages, tools=WEATHER_TOOLS)["choices"][0]["message"]
        self.assertEqual([c["id"] for c in message["tool_calls"]], ["get_weather_1"])

    def test_tools_declared_later_are_called_too(self):
        messages = [{"role": "system", "tools": WEATHER_TOOLS}, user(WEATHER)]
        self.chat(messages)
        self.refused({"messages": messages, "tools": WEATHER_TOOLS})  # declared twice
        self.refused({"messages": [dict(user(WEATHER), tools=WEATHER_TOOLS)]})  # not by a system message

    def test_wrong_declarations_are_refused(self):
        good = TOOLS["get_weather"]["function"]
        for tools in ["x", [1], [{}], [{"type": "function"}], [{"type": "web", "function": good}],
                      [{"type": "function", "function": {}}], [{"type": "function", "function": dict(good, name="")}],
                      [{"type": "function", "function": dict(good, parameters="x")}],
                      [TOOLS["get_weather"], TOOLS["get_weather"]]]:
            error = self.refused({"messages": [user(WEATHER)], "tools": tools})
            self.assertIn("tools", error["param"] or error["message"], error)


class Messages(ChatCase):
    def prompt(self, messages, **fields):
        return self.ok("/tokenize", {"messages": messages, **fields})["tokens"]

    def test_reference_conversations_have_the_reference_prompts(self):
        cases = json.loads((ROOT / "tests" / "golden" / "k3-tiny" / "golden.json").read_text())["cases"]
        self.assertGreater(len(cases), 5)
        for case in cases:
            fields = {"chat_template_kwargs": {k: case[k] for k in ["thinking", "thinking_effort"]}}
            if case["tools"]:
                fields["tools"] = [TOOLS[name] for name in case["tools"]]
            self.assertEqual(self.prompt(case["messages"], **fields), case["prompt_ids"], case["name"])

    def test_developer_is_system(self):
        rest = [user("What comes after Friday?")]
        as_system = self.prompt([{"role": "system", "content": "You are terse."}, *rest])
        self.assertEqual(self.prompt([{"role": "developer", "content": "You are terse."}, *rest]), as_system)
        self.assertNotEqual(self.prompt(rest), as_system)

    def test_parts_are_joined_for_every_role(self):
        parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "47 + 38?"}]
        self.assertEqual(self.prompt([user(parts)]), self.prompt([user("What is\n47 + 38?")]))
        one = [{"type": "text", "text": SUM}]
        self.assertEqual(self.chat([user(one)])["choices"][0]["message"]["content"], "47 + 38 = 85.")
        for role in ["system", "developer", "assistant", "tool"]:
            extra = {"name": "get_weather"} if role == "tool" else {}
            self.assertEqual(self.prompt([user("Hi"), {"role": role, "content": one, **extra}]),
                             self.prompt([user("Hi"), {"role": role, "content": SUM, **extra}]))

    def test_absent_null_and_empty_content_are_one(self):
        for role in ["system", "user", "assistant"]:
            forms = [{"role": role}, {"role": role, "content": None}, {"role": role, "content": ""},
                     {"role": role, "content": []}]
            prompts = {tuple(self.prompt([form, user("Hi")])) for form in forms}
            self.assertEqual(len(prompts), 1, role)

    def test_calls_without_content_and_reasoning_alone_are_history(self):
        call = {"id": "a", "type": "function", "function": {"name": "get_time", "arguments": '{"city":"Rome"}'}}
        plain = self.prompt([user("Hi"), {"role": "assistant", "content": ""}, user("Hi")])
        for turn in [{"content": None, "tool_calls": [call]}, {"tool_calls": [call]}, {"reasoning_content": "because"},
                     {"reasoning": "because"}]:
            prompt = self.prompt([user("Hi"), {"role": "assistant", **turn}, user("Hi")])
            self.assertGreater(len(prompt), len(plain), turn)
        self.assertEqual(self.prompt([user("Hi"), {"role": "assistant", "reasoning": "because"}]),
                         self.prompt([user("Hi"), {"role": "assistant", "reasoning_content": "because"}]))

    def test_unknown_roles_and_parts_are_refused_with_their_place(self):
        for messages, place in [([user("a"), {"role": "robot", "content": "b"}], "messages[1].role"),
                                ([user("a"), {"content": "b"}], "messages[1].role"),
                                ([user([{"type": "image_url", "image_url": {"url": "x"}}])], "messages[0].content[0]"),
                                ([user([{"text": "a"}])], "messages[0].content[0]"),
                                ([user(7)], "messages[0].content"), ([{"role": "tool", "content": "x"}], "messages[0]"),
                                ([], "messages"), ("hello", "messages"), ([None], "messages[0]")]:
            error = self.refused({"messages": messages})
            self.assertIn(place, f"{error['param']} {error['message']}")

    def test_control_text_of_users_stays_text(self):
        plain = self.prompt([user("x")])
        num_control = sum(i >= 2048 for i in plain)
        for text in ["<|open|>message<|sep|>", "<|close|>think<|sep|><|end_of_msg|>[EOS]", "<|reserved_token_2200|>"]:
            ids = self.prompt([user(text)])
            self.assertEqual(sum(i >= 2048 for i in ids), num_control, text)


class Thinking(ChatCase):
    def prompt(self, **fields):
        return self.ok("/tokenize", {"messages": [user(SUM)], **fields})["tokens"]

    def test_every_spelling_of_effort_gives_the_same_prompt(self):
        efforts = {name: self.prompt(chat_template_kwargs={"thinking_effort": name}) for name in ["low", "high", "max"]}
        self.assertEqual(len({tuple(ids) for ids in efforts.values()}), 3)
        self.assertEqual(self.prompt(), efforts["max"])
        for word, effort in [("minimal", "low"), ("low", "low"), ("medium", "high"), ("high", "high"),
                             ("xhigh", "max"), ("max", "max")]:
            self.assertEqual(self.prompt(reasoning_effort=word), efforts[effort], word)
            self.assertEqual(self.prompt(thinking={"type": "enabled", "effort": word}), efforts[effort], word)

    def test_every_spelling_of_off_gives_the_same_prompt(self):
        off = self.prompt(chat_template_kwargs={"thinking": False})
        self.assertLess(len(off), len(self.prompt()))
        for fields in [{"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}},
                       {"chat_template_kwargs": {"enable_thinking": False}},
                       {"thinking": {"type": "disabled", "effort": "low"}}]:
            self.assertEqual(self.prompt(**fields), off, fields)
        message = self.chat(SUM, thinking={"type": "disabled"})["choices"][0]["message"]
        self.assertEqual(message, {"role": "assistant", "content": "47 + 38 = 85."})

    def test_template_arguments_beat_the_thinking_object_and_that_beats_the_common_effort(self):
        low = self.prompt(reasoning_effort="low")
        self.assertEqual(self.prompt(reasoning_effort="high", thinking={"effort": "low"}), low)
        self.assertEqual(self.prompt(reasoning_effort="high", thinking={"effort": "max"},
                                     chat_template_kwargs={"thinking_effort": "low"}), low)
        self.assertEqual(self.prompt(thinking={"type": "disabled"}, chat_template_kwargs={"thinking": True}),
                         self.prompt())

    def test_a_null_effort_leaves_effort_out_of_the_prompt(self):
        silent = self.prompt(chat_template_kwargs={"thinking_effort": None})
        self.assertLess(len(silent), len(self.prompt()))
        self.assertEqual(self.prompt(chat_template_kwargs={"thinking_effort": None}, reasoning_effort="low"), silent)

    def test_unknown_words_are_refused(self):
        for fields in [{"reasoning_effort": "huge"}, {"reasoning_effort": 3}, {"thinking": True},
                       {"thinking": {"type": "maybe"}}, {"chat_template_kwargs": {"thinking_effort": "medium"}},
                       {"chat_template_kwargs": {"thinking": "yes"}}, {"chat_template_kwargs": []}]:
            self.refused({"messages": [user(SUM)], **fields})

    def test_reasoning_can_be_left_out_of_the_answer(self):
        whole = self.chat(SUM, include_reasoning=False)
        self.assertNotIn("reasoning_content", whole["choices"][0]["message"])
        self.assertGreater(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
        self.assertEqual(self.stream(SUM, include_reasoning=False).choices[0].reasoning, "")


class ResponseFormat(ChatCase):
    QUESTION = "Give JSON for a person named Anna."

    def test_formats_change_the_prompt_and_answers_stay_well_formed(self):
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": {"type": "object"}}}
        prompts = [self.ok("/tokenize", {"messages": [user(self.QUESTION)], "response_format": f})["tokens"]
                   for f in [None, {"type": "text"}, {"type": "json_object"}, schema]]
        self.assertEqual(prompts[0], prompts[1])
        self.assertEqual(len({tuple(p) for p in prompts}), 3)
        for response_format in [{"type": "json_object"}, schema]:
            answer = self.chat(self.QUESTION, response_format=response_format)["choices"][0]
            self.assertEqual(answer["finish_reason"], "stop")
            self.assertIsInstance(answer["message"]["content"], str)

    def test_wrong_formats_are_refused(self):
        for response_format in ["json", {}, {"type": "xml"}, {"type": "json_schema"},
                                {"type": "json_schema", "json_schema": {"name": "x"}},
                                {"type": "json_schema", "json_schema": {"name": "x", "schema": "y"}}]:
            error = self.refused({"messages": [user(SUM)], "response_format": response_format})
            self.assertIn("response_format", error["param"])


if __name__ == "__main__":
    unittest.main()
