"""Questions whose right answers are known, of the kinds that k3-tiny was trained on."""

import json
import random

CAPITALS = {"Japan": "Tokyo", "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Norway": "Oslo"}
# Words that the demo model has seen; it spells no others.
WORDS = ["rocket", "zebra", "silver", "window", "bridge", "market", "copper", "velvet", "violin", "jungle", "candle",
         "magnet", "island", "jacket", "ladder", "walnut", "falcon", "pencil", "dragon", "castle", "hammer", "mirror"]


def tool(name, argument, kind, description):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {argument: {"type": kind}}, "required": [argument]}}}


TOOLS = {
    "get_weather": tool("get_weather", "city", "string", "Weather in a city"),
    "get_time": tool("get_time", "city", "string", "Local time in a city"),
    "set_timer": tool("set_timer", "minutes", "number", "Start a timer"),
}


class Question:
    def __init__(self, kind, text, check, tools=None):
        self.kind, self.text, self.check, self.tools = kind, text, check, tools

    def body(self):
        body = {"messages": [{"role": "user", "content": self.text}], "temperature": 0, "max_tokens": 400}
        if self.tools:
            body["tools"] = [TOOLS[name] for name in self.tools]
        return body

    def is_right(self, message):
        return self.check(message)


def says(expected):
    return lambda message: expected in (message.get("content") or "")


def calls(name, arguments):
    def check(message):
        made = message.get("tool_calls") or []
        return (len(made) == 1 and made[0]["function"]["name"] == name
                and json.loads(made[0]["function"]["arguments"]) == arguments)
    return check


def sum_question(rng):
    if rng.random() < 0.5:
        a, b = rng.randint(1, 99), rng.randint(1, 99)
        while a + b > 99:
            a, b = rng.randint(1, 99), rng.randint(1, 99)
        return Question("sum", f"What is {a} + {b}?", says(f"= {a + b}."))
    a = rng.randint(1, 99)
    b = rng.randint(0, a)
    return Question("sum", f"What is {a} - {b}?", says(f"= {a - b}."))


def capital_question(rng):
    country, capital = rng.choice(list(CAPITALS.items()))
    return Question("capital", f"What is the capital of {country}?", says(capital))


def spelling_question(rng):
    word = rng.choice(WORDS)
    return Question("spelling", f"Spell {word} backwards.", says(word[::-1]))


def tool_question(rng):
    if rng.random() < 0.5:
        city = rng.choice(list(CAPITALS.values()))
        return Question("tool", f"How is the weather in {city}?", calls("get_weather", {"city": city}),
                        ["get_weather", "set_timer"])
    minutes = rng.randint(1, 59)
    return Question("tool", f"Set a timer for {minutes} minutes.", calls("set_timer", {"minutes": minutes}),
                    ["set_timer"])


def generate(count, seed):
    """`count` questions in equal parts of each kind."""
    rng = random.Random(seed)
    kinds = [sum_question, capital_question, spelling_question, tool_question]
    return [kinds[i % len(kinds)](rng) for i in range(count)]
