"""Reads the chunks of a streamed chat answer and checks every rule that clients rely on.

    answer = ChatChunks(case).read(stream)
    answer.choices[0].content
"""

KINDS = ["content", "reasoning_content", "tool_calls"]


class StreamedChoice:
    def __init__(self):
        self.content = self.reasoning = ""
        self.tool_calls = []
        self.finish_reason = self.stop_reason = self.usage = None
        self.num_chunks = self.num_boundaries = 0
        self.logprobs, self.token_ids, self.internal_ids = [], [], []


class ChatChunks:
    def __init__(self, case, num_choices=1, may_break_text=False):
        self.case, self.may_break_text = case, may_break_text
        self.choices = [StreamedChoice() for _ in range(num_choices)]
        self.head = self.summary = None
        self.usages = []  # of all chunks that have one

    def read(self, stream):
        case = self.case
        case.assertEqual(stream.status, 200)
        case.assertTrue(stream.response.headers["Content-Type"].startswith("text/event-stream"))
        case.assertEqual(stream.response.headers["Cache-Control"], "no-cache")
        for event in stream:
            self.read_chunk(event)
        stream.close()
        case.assertTrue(stream.is_done, "the stream lacks [DONE]")
        for choice in self.choices:
            case.assertIsNotNone(choice.finish_reason)
        return self

    def read_chunk(self, event):
        case = self.case
        case.assertNotIn("error", event)
        head = {key: event[key] for key in ["id", "object", "created", "model"]}
        self.head = self.head or head
        case.assertEqual(head, self.head)
        case.assertEqual(head["object"], "chat.completion.chunk")
        case.assertRegex(head["id"], r"^chatcmpl-[0-9a-f]{24}$")
        case.assertIsInstance(head["created"], int)
        case.assertIsNone(self.summary, "a chunk behind the summary")
        if "usage" in event:
            self.usages.append(event["usage"])
        if not event["choices"]:
            case.assertTrue(all(c.finish_reason for c in self.choices), "the summary comes before the end")
            self.summary = event["usage"]
            return
        case.assertEqual(len(event["choices"]), 1)
        self.read_entry(event["choices"][0])

    def read_entry(self, entry):
        case = self.case
        choice, delta = self.choices[entry["index"]], entry["delta"]
        case.assertIsNone(choice.finish_reason, "a chunk behind the end")
        choice.num_chunks += 1
        if choice.num_chunks == 1:
            case.assertEqual(delta, {"role": "assistant", "content": ""})
            case.assertIsNone(entry["finish_reason"])
            case.assertNotIn("logprobs", entry)
            return
        case.assertNotIn("role", delta)
        case.assertLessEqual(sum(kind in delta for kind in KINDS), 1, delta)
        choice.token_ids += entry.get("token_ids", [])
        choice.internal_ids += delta.get("internal_content", {}).get("token_ids", [])
        choice.logprobs += (entry.get("logprobs") or {}).get("content", [])
        if entry["finish_reason"] is not None:
            self.read_end(choice, entry)
        else:
            self.read_delta(choice, delta)

    def read_end(self, choice, entry):
        self.case.assertEqual(entry["delta"], {})
        choice.finish_reason, choice.stop_reason = entry["finish_reason"], entry.get("stop_reason")
        choice.usage = entry["usage"]
        check_usage(self.case, choice.usage)

    def read_delta(self, choice, delta):
        case = self.case
        for key in ["content", "reasoning_content"]:
            if key in delta:
                case.assertIsInstance(delta[key], str)
                if not self.may_break_text:
                    case.assertNotIn("\ufffd", delta[key])
        if delta.get("reasoning_content") == "":
            choice.num_boundaries += 1
            case.assertEqual(choice.num_boundaries, 1)
        elif "reasoning_content" in delta:
            case.assertEqual(choice.num_boundaries, 0, "reasoning behind the boundary")
            choice.reasoning += delta["reasoning_content"]
        elif "content" in delta:
            case.assertTrue(delta["content"])
            choice.content += delta["content"]
        for part in delta.get("tool_calls", []):
            self.read_call(choice, part)

    def read_call(self, choice, part):
        case, calls = self.case, choice.tool_calls
        if part["index"] == len(calls):
            case.assertEqual(set(part), {"index", "id", "type", "function"})
            case.assertEqual((part["type"], part["function"]["arguments"]), ("function", ""))
            case.assertTrue(part["function"]["name"])
            calls.append({"id": part["id"], "type": "function", "function": dict(part["function"])})
            return
        case.assertEqual(part["index"], len(calls) - 1, "calls are mixed up")
        case.assertEqual((set(part), set(part["function"])), ({"index", "function"}, {"arguments"}))
        calls[-1]["function"]["arguments"] += part["function"]["arguments"]


def check_usage(case, usage):
    case.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
    case.assertIsInstance(usage["prompt_tokens_details"]["cached_tokens"], int)
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    case.assertIsInstance(reasoning, int)
    case.assertLessEqual(reasoning, usage["completion_tokens"])


def message_of(choice):
    """A streamed choice in the form of a whole answer's message."""
    message = {"role": "assistant", "content": choice.content or (None if choice.tool_calls else "")}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["tool_calls"] = choice.tool_calls
    return message
