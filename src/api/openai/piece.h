#pragma once
// What a client gets to see of one choice, in order.

#include <cstdint>
#include <string>
#include <vector>

#include "k3pod/sample/sampler.h"

namespace k3pod {

struct Piece {
    enum class Kind : uint8_t {
        kReasoning,
        kReasoningEnd,  // no text; once, when there was thinking
        kContent,
        kToolBegin,      // text is the function's name
        kToolArguments,  // text is JSON, a part of it
    };
    Kind kind = Kind::kContent;
    std::string text{};
    int32_t tool_index = 0;
    std::vector<SampledToken> logprobs{};  // of the tokens that this text is made of, if asked for
};

}  // namespace k3pod
