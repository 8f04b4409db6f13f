"""Fields of a request that shape its text: stops, limits, bias, penalties, seeds, logprobs, prompts."""

import math
import unittest

from chat_chunks import ChatChunks, message_of
from pod import PodCase, Stream
from questions import TOOLS

SUM = "What is 47 + 38?"
ANSWER = "47 + 38 = 85."
STORY = "Tell me a story about a fox."
OFF = {"reasoning_effort": "none"}
A, B = "64", "65"  # the ids of "a" and "b"


def generated(answer, index=0):
    return answer["choices"][index]["token_ids"]


class Stops(PodCase):
    def check(self, stop, content, finish="stop", **fields):
        """Whole and streamed answers end alike, and nothing of the stop string is seen."""
        choice = self.chat(SUM, stop=stop, **OFF, **fields)["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (content, finish), stop)
        streamed = ChatChunks(self).read(self.pod.stream(SUM, stop=stop, **OFF, **fields)).choices[0]
        self.assertEqual((message_of(streamed), streamed.finish_reason), (choice["message"], finish))
        self.assertEqual(streamed.stop_reason, choice["stop_reason"])
        return choice["stop_reason"]

    def test_stop_strings_may_lie_over_tokens(self):
        self.assertGreater(len(self.tokenize("8 = 8")), 3)
        self.assertEqual(self.check("8 = 8", "47 + 3"), "8 = 8")
        self.assertEqual(self.check(["nothing", "+ 38 = 85.", "="], "47 + 38 "), "=")  # complete before the longer
        self.assertEqual(self.check([" =", "38 ="], "47 + "), "38 =")  # both at once: the one that began first
        self.assertEqual(self.check("4", ""), "4")

    def test_text_that_only_begins_like_a_stop_string_is_released(self):
        self.check("38 = 86", ANSWER)
        self.check("85.!", ANSWER)  # held back to the very end
        self.check("85.!", "47 + 38 = 8", finish="length", max_tokens=9)

    def test_the_stop_string_is_shown_on_demand(self):
        self.check("8 = 8", "47 + 38 = 8", include_stop_str_in_output=True)

    def test_stops_in_reasoning_end_the_answer_without_content(self):
        choice = self.chat(SUM, stop="tens")["choices"][0]
        self.assertEqual(choice["message"], {"role": "assistant", "content": "",
                                             "reasoning_content": "ones: 7 + 8 = 15. "})
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", "tens"))

    def test_stop_ids_end_the_answer_and_are_not_shown(self):
        equals = self.tokenize(" =")[0]
        choice = self.chat(SUM, stop_token_ids=[equals], **OFF)["choices"][0]
        self.assertEqual((choice["message"]["content"], choice["stop_reason"]), ("47 + 38", equals))
        choice = self.chat(SUM, stop_token_ids=[equals], include_stop_str_in_output=True, **OFF)["choices"][0]
        self.assertEqual(choice["message"]["content"], "47 + 38 =")

    def test_stops_do_not_see_markers_or_the_arguments_of_calls(self):
        question, fields = "How is the weather in Oslo?", {"tools": [TOOLS["get_weather"]]}
        free = self.chat(question, **fields)["choices"][0]
        self.assertEqual(free["finish_reason"], "tool_calls")
        for stop in [["think", "response", "sep|>", "<|"], ["Oslo"], ["city"]]:
            self.assertEqual(self.chat(question, stop=stop, **fields)["choices"][0], free)
            streamed = ChatChunks(self).read(self.pod.stream(question, stop=stop, **fields)).choices[0]
            self.assertEqual(message_of(streamed), free["message"])

    def test_stops_of_completions(self):
        answer = self.complete("The capital of Japan", max_tokens=40, stop=["oky"])["choices"][0]
        self.assertEqual((answer["text"], answer["finish_reason"], answer["stop_reason"]), (" is T", "stop", "oky"))

    def test_wrong_stops_are_refused(self):
        for stop in ["", [""], 3, [1], {"a": 1}, ["x"] * 17, ["x" * 2000]]:
            error = self.refused({"messages": [{"role": "user", "content": SUM}], "stop": stop})
            self.assertIn("stop", error["param"])


class Limits(PodCase):
    def test_max_completion_tokens_beats_max_tokens(self):
        for fields, count in [({"max_tokens": 3}, 3), ({"max_completion_tokens": 4}, 4),
                              ({"max_tokens": 3, "max_completion_tokens": 5}, 5),
                              ({"max_tokens": 5, "max_completion_tokens": 3}, 3)]:
            answer = self.chat(SUM, **fields)
            self.assertEqual(answer["usage"]["completion_tokens"], count, fields)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_ignore_eos_goes_on_to_the_limit_and_shows_no_markers(self):
        answer = self.chat(SUM, ignore_eos=True, max_tokens=150)
        self.assertEqual(answer["usage"]["completion_tokens"], 150)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        text = str(answer["choices"][0]["message"])
        for marker in ["<|", "|>", "[EOS]", "end_of_msg"]:
            self.assertNotIn(marker, text)

    def test_min_tokens_holds_the_end_back(self):
        natural = self.chat(SUM, **OFF)["usage"]["completion_tokens"]
        answer = self.chat(SUM, min_tokens=natural + 5, max_tokens=natural + 40, return_token_ids=True, **OFF)
        self.assertGreaterEqual(answer["usage"]["completion_tokens"], natural + 5)
        for end in [2049, 2050]:
            self.assertNotIn(end, generated(answer)[:natural + 5])
        held = self.chat(SUM, min_tokens=9, stop="47", **OFF)["choices"][0]
        self.assertEqual(held["message"]["content"], ANSWER, "a stop string counted before min_tokens")

    def test_completions_take_16_tokens_when_no_limit_is_named(self):
        self.assertEqual(self.complete("a", ignore_eos=True)["usage"]["completion_tokens"], 16)

    def test_more_than_the_context_is_refused_with_the_figures(self):
        for body, words in [({"max_tokens": 8190}, ["8190", "8192"]), ({"max_tokens": 2**31 - 1}, ["2147483647"])]:
            error = self.refused({"messages": [{"role": "user", "content": SUM}], **body})
            self.assertEqual(error["code"], "context_length_exceeded")
            for word in words:
                self.assertIn(word, error["message"])
        error = self.refused({"prompt": [1] * 8192, "max_tokens": 1}, "/v1/completions")
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn("8192", error["message"])

    def test_wrong_limits_are_refused(self):
        for name in ["max_tokens", "max_completion_tokens"]:
            for value in [0, -1, -2**63, 2**31, 1.5, "7", True, [1], {}]:
                error = self.refused({"messages": [{"role": "user", "content": SUM}], name: value})
                self.assertEqual(error["param"], name)
        self.refused({"messages": [{"role": "user", "content": SUM}], "min_tokens": 9, "max_tokens": 8})


class Choosing(PodCase):
    def test_bias_forces_and_bans_tokens(self):
        forced = self.complete("The capital", max_tokens=5, logit_bias={A: 100}, return_token_ids=True)
        self.assertEqual(generated(forced), [64] * 5)
        self.assertEqual(forced["choices"][0]["text"], "aaaaa")
        free = generated(self.complete("The capital", max_tokens=1, return_token_ids=True))[0]
        banned = generated(self.complete("The capital", max_tokens=30, logit_bias={str(free): -100},
                                         return_token_ids=True))
        self.assertNotIn(free, banned)

    def test_wrong_bias_is_refused(self):
        for bias in [{"x": 1}, {"-1": 1}, {"2304": 1}, {"1": 101}, {"1": -100.5}, {"1": "a"}, {"1": None}, [1], "a",
                     {"99999999999999999999": 1}, {"": 1}, {"1 ": 1}]:
            self.refused({"prompt": "a", "logit_bias": bias}, "/v1/completions")

    def test_penalties_push_away_what_was_said(self):
        bias = {A: 30, B: 29}

        def ids(**fields):
            return generated(self.complete("The capital", max_tokens=24, logit_bias=bias, return_token_ids=True,
                                           **fields))
        plain = ids()
        self.assertEqual(ids(presence_penalty=0, frequency_penalty=0, repetition_penalty=1), plain)
        self.assertGreater(len(set(ids(frequency_penalty=2))), len(set(plain)))
        self.assertNotEqual(ids(presence_penalty=2), plain)
        self.assertNotEqual(ids(repetition_penalty=2), plain)
        for name, values in {"presence_penalty": [2.1, -2.1, "a"], "frequency_penalty": [3, None, []],
                             "repetition_penalty": [0, -1, 2.5]}.items():
            for value in [v for v in values if v is not None]:
                self.refused({"prompt": "a", name: value}, "/v1/completions")

    def test_repetition_penalty_counts_the_prompt_too(self):
        greedy = generated(self.complete("The capital of Japan", max_tokens=1, return_token_ids=True))
        prompt = self.tokenize("The capital of Japan") + greedy
        rest = self.complete(prompt, max_tokens=20, return_token_ids=True)
        self.assertNotEqual(generated(self.complete(prompt, max_tokens=20, repetition_penalty=2,
                                                    return_token_ids=True)), generated(rest))

    def test_greedy_is_what_top_k_1_and_a_tiny_top_p_give(self):
        greedy = self.chat(STORY, max_tokens=40)["choices"][0]["message"]
        for fields in [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1}]:
            self.assertEqual(self.chat(STORY, max_tokens=40, **{"temperature": 1, **fields})["choices"][0]["message"],
                             greedy, fields)

    def test_wrong_sampling_is_refused(self):
        for name, values in {"temperature": [-0.1, 2.5, "1", True], "top_p": [0, 1.1, -1], "top_k": [-2, 1.5, "a"],
                             "min_p": [-0.1, 1.1], "n": [0, -1, 129, "2"], "seed": ["a", 1.5, 2**63],
                             "ignore_eos": [1, "true"], "stream": ["yes", 0], "min_tokens": [-1]}.items():
            for value in values:
                error = self.refused({"prompt": "a", name: value}, "/v1/completions")
                self.assertEqual(error["param"], name)

    def test_seeds_decide_the_text(self):
        def text(seed):
            return self.chat(STORY, temperature=1, seed=seed, max_tokens=80, **OFF)["choices"][0]["message"]["content"]
        self.assertEqual(text(7), text(7))
        self.assertEqual(len({text(seed) for seed in [1, 2, 3, -2**63, 2**63 - 1]}), 5)
        unseeded = {self.chat(STORY, temperature=1, max_tokens=80, **OFF)["choices"][0]["message"]["content"]
                    for _ in range(3)}
        self.assertEqual(len(unseeded), 3, "requests without a seed share one")


class Logprobs(PodCase):
    def check_entry(self, entry, num_top):
        self.assertEqual(set(entry), {"token", "logprob", "bytes", "top_logprobs"})
        self.assertEqual(len(entry["top_logprobs"]), num_top)
        values = [t["logprob"] for t in entry["top_logprobs"]]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertLess(sum(map(math.exp, values)), 1.0001)
        if num_top:
            best = dict(entry)
            del best["top_logprobs"]
            self.assertEqual(entry["top_logprobs"][0], best, "greedy takes the likeliest")

    def test_bytes_join_to_the_content(self):
        for text, content in [(SUM, ANSWER), ("Repeat exactly: 日本語 🎉 zebra", "日本語 🎉 zebra")]:
            for num_top in [0, 3, 20]:
                fields = {"logprobs": True, "top_logprobs": num_top}
                entries = self.chat(text, **fields)["choices"][0]["logprobs"]["content"]
                self.assertEqual(bytes(b for e in entries for b in e["bytes"]).decode(), content)
                for entry in entries:
                    self.check_entry(entry, num_top)
                streamed = ChatChunks(self).read(self.pod.stream(text, **fields)).choices[0]
                self.assertEqual(streamed.logprobs, entries)

    def test_without_logprobs_there_are_none(self):
        self.assertIsNone(self.chat(SUM)["choices"][0]["logprobs"])
        for fields in [{"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": 3},
                       {"logprobs": True, "top_logprobs": -1}]:
            self.refused({"messages": [{"role": "user", "content": SUM}], **fields})

    def test_completions_have_parallel_lists(self):
        choice = self.complete("The capital of Japan", max_tokens=6, logprobs=2)["choices"][0]
        self.assertEqual(choice["text"], " is Tokyo.")
        found = choice["logprobs"]
        self.assertEqual("".join(found["tokens"]), choice["text"])
        self.assertEqual(found["text_offset"], [0, 3, 6, 7, 8, 9])
        for token, logprob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]):
            self.assertEqual(max(top, key=top.get), token)
            self.assertEqual(top[token], logprob)
        self.assertEqual({len(v) for v in found.values()}, {6})
        for value in [21, -1, True, "2"]:
            self.refused({"prompt": "a", "logprobs": value}, "/v1/completions")

    def test_logprobs_are_those_before_temperature_and_bias(self):
        plain = self.complete("The capital of Japan", max_tokens=1, logprobs=5)["choices"][0]["logprobs"]
        biased = self.complete("The capital of Japan", max_tokens=1, logprobs=5, temperature=1.5, seed=1,
                               logit_bias={A: 100})["choices"][0]["logprobs"]
        self.assertEqual(biased["tokens"], ["a"])
        for token, logprob in plain["top_logprobs"][0].items():
            self.assertEqual(biased["top_logprobs"][0][token], logprob)


class Prompts(PodCase):
    TEXT = "The capital of Japan"

    def test_texts_ids_and_lists_of_both_are_alike(self):
        ids = self.tokenize(self.TEXT)
        expected = self.complete(self.TEXT, max_tokens=6)
        self.assertEqual(expected["choices"][0]["text"], " is Tokyo.")
        for prompt, count in [([self.TEXT], 1), (ids, 1), ([ids], 1), ([self.TEXT] * 3, 3), ([ids, ids], 2)]:
            answer = self.complete(prompt, max_tokens=6)
            self.assertEqual([c["index"] for c in answer["choices"]], list(range(count)))
            for choice in answer["choices"]:
                self.assertEqual(dict(choice, index=0), expected["choices"][0])
            self.assertEqual(answer["usage"]["prompt_tokens"], len(ids) * count)
            self.assertEqual(answer["usage"]["completion_tokens"], 6 * count)

    def test_several_prompts_with_several_choices_come_in_order(self):
        prompts = [self.TEXT, "What comes after"]
        answer = self.complete(prompts, n=2, max_tokens=4, return_token_ids=True)
        self.assertEqual([c["prompt_token_ids"] for c in answer["choices"]],
                         [self.tokenize(prompts[i]) for i in [0, 0, 1, 1]])
        self.assertEqual(generated(answer, 0), generated(answer, 1))

    def test_ids_of_an_answer_are_its_text(self):
        answer = self.complete(self.TEXT, max_tokens=6, return_token_ids=True)
        self.assertEqual(answer["choices"][0]["prompt_token_ids"], self.tokenize(self.TEXT))
        self.assertEqual(self.ok("/detokenize", {"tokens": generated(answer)})["prompt"], " is Tokyo.")

    def test_control_tokens_are_shown_on_demand(self):
        fields = {"max_tokens": 3, "logit_bias": {"2303": 100}}
        self.assertEqual(self.complete("a", **fields)["choices"][0]["text"], "")
        shown = self.complete("a", skip_special_tokens=False, **fields)["choices"][0]["text"]
        self.assertEqual(shown, "[PAD][PAD][PAD]")

    def test_streamed_completions_join_to_the_whole(self):
        fields = {"prompt": [self.TEXT, "Repeat exactly: 🎉"], "max_tokens": 20, "temperature": 0, "logprobs": 1,
                  "return_token_ids": True}
        whole = self.ok("/v1/completions", fields)
        texts, ids, tokens, ends = ["", ""], [[], []], [[], []], [None, None]
        stream = Stream(self.pod.port, "/v1/completions", dict(fields, stream_options={"include_usage": True}))
        usage = None
        for event in stream:
            self.assertEqual(event["object"], "text_completion")
            usage = event.get("usage", usage)
            for choice in event["choices"]:
                i = choice["index"]
                self.assertIsNone(ends[i])
                texts[i] += choice["text"]
                ids[i] += choice.get("token_ids", [])
                tokens[i] += (choice["logprobs"] or {}).get("tokens", [])
                ends[i] = choice["finish_reason"]
        stream.close()
        self.assertTrue(stream.is_done)
        self.assertEqual(texts, [c["text"] for c in whole["choices"]])
        self.assertEqual(ids, [c["token_ids"] for c in whole["choices"]])
        self.assertEqual(tokens, [c["logprobs"]["tokens"] for c in whole["choices"]])
        self.assertEqual(ends, [c["finish_reason"] for c in whole["choices"]])
        self.assertEqual(usage, whole["usage"])

    def test_a_limit_inside_a_character_shows_one_replacement_at_the_end(self):
        first = self.tokenize("é")[0]  # the first of two bytes
        for limit in [1, 3]:
            answer = self.complete("a", max_tokens=limit, logit_bias={str(first): 100}, return_token_ids=True)
            self.assertEqual(answer["choices"][0]["text"], "\ufffd" * limit)
            self.assertEqual(generated(answer), [first] * limit)

    def test_wrong_prompts_are_refused(self):
        for prompt in [None, 7, {}, [], "", [""], [[]], ["a", 1], [1, "a"], [-1], [2304], [[1], [-5]], [1.5], [True],
                       ["a"] * 129, [["a"]]]:
            error = self.refused({"prompt": prompt}, "/v1/completions")
            self.assertIn("prompt", f"{error['param']} {error['message']}", prompt)
        self.refused({}, "/v1/completions")
        for field in [{"echo": True}, {"suffix": "b"}, {"best_of": 3}, {"prompt_logprobs": 1}]:
            self.refused({"prompt": "a", **field}, "/v1/completions")


if __name__ == "__main__":
    unittest.main()
