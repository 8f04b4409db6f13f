"""The official openai client streams, calls a tool and reads reasoning. Needs PyPI once; skipped without."""

import pathlib
import subprocess
import unittest
import venv

from pod import BUILD, Pod
from questions import TOOLS

VENV = pathlib.Path(BUILD) / "openai-client"


def ensure_client():
    """The python of a virtual environment that has the client, or None when it cannot be had."""
    python = VENV / "bin" / "python"
    have = [str(python), "-c", "import openai"]
    if python.exists() and subprocess.run(have, capture_output=True).returncode == 0:
        return python
    try:
        venv.create(VENV, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--retries", "1", "--timeout", "20", "openai"], check=True, capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError):
        return None
    return python


CLIENT = r"""
import json, sys
from openai import OpenAI, BadRequestError, NotFoundError

client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
tools = json.loads(sys.argv[2])
model = client.models.list().data[0].id

answer = client.chat.completions.create(model=model, temperature=0,
    messages=[{"role": "user", "content": "What is 47 + 38?"}])
assert answer.choices[0].message.content == "47 + 38 = 85.", answer
assert "so 85" in answer.choices[0].message.reasoning_content, answer
assert answer.choices[0].finish_reason == "stop"
assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

text, reasoning, usage = "", "", None
for chunk in client.chat.completions.create(model=model, temperature=0, stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": "What is the capital of Japan?"}]):
    if chunk.usage and not chunk.choices:
        usage = chunk.usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
assert text == "The capital of Japan is Tokyo.", text
assert "Tokyo" in reasoning, reasoning
assert usage.completion_tokens > 0

messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
turn = client.chat.completions.create(model=model, temperature=0, messages=messages, tools=tools).choices[0]
assert turn.finish_reason == "tool_calls", turn
call = turn.message.tool_calls[0]
assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Oslo"}, call
messages += [turn.message.model_dump(exclude_none=True),
             {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
final = client.chat.completions.create(model=model, temperature=0, messages=messages, tools=tools)
assert final.choices[0].finish_reason in ("stop", "tool_calls"), final
assert final.usage.prompt_tokens > 100, final

name, arguments = "", ""
for chunk in client.chat.completions.create(model=model, temperature=0, stream=True, tools=tools,
        messages=[{"role": "user", "content": "Set a timer for 12 minutes."}]):
    for choice in chunk.choices:
        for part in choice.delta.tool_calls or []:
            name += part.function.name or ""
            arguments += part.function.arguments or ""
assert name == "set_timer" and json.loads(arguments) == {"minutes": 12}, (name, arguments)

# A long prompt: the stream is filled with comments until the first token.
chunks = list(client.chat.completions.create(model=model, temperature=0, stream=True, max_tokens=3,
    messages=[{"role": "user", "content": "fox " * 1500}]))
assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]

done = client.completions.create(model=model, prompt="a", max_tokens=3, temperature=0)
assert done.usage.completion_tokens <= 3

for wrong, kind in [(dict(messages=[]), BadRequestError), (dict(messages="x"), BadRequestError)]:
    try:
        client.chat.completions.create(model=model, **wrong)
        raise SystemExit("accepted a bad request")
    except kind as error:
        assert error.body["message"], error
try:
    client.chat.completions.create(model="another", messages=[{"role": "user", "content": "Hi"}])
    raise SystemExit("accepted an unknown model")
except NotFoundError:
    pass
print("client ok")
"""


class OpenAiClient(unittest.TestCase):
    def test_official_client_streams_calls_tools_and_reads_reasoning(self):
        python = ensure_client()
        if python is None:
            self.skipTest("the openai package cannot be installed here: no network")
        import json
        tools = json.dumps([TOOLS["get_weather"], TOOLS["set_timer"]])
        with Pod(experts=2, station={"sse_keepalive": '"50 ms"'}) as pod:
            pod.start()
            done = subprocess.run([str(python), "-c", CLIENT, f"http://127.0.0.1:{pod.port}/v1", tools],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("client ok", done.stdout)


if __name__ == "__main__":
    unittest.main()
