#include "engine/check_request.h"

#include <fmt/format.h>

#include <span>

namespace k3pod {
namespace {

Status check_ids(const char* what, std::span<const int32_t> ids, int32_t vocab) {
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return invalid_argument(
            fmt::format("{} holds token id {} at index {}; ids of this model are in [0, {}]", what,
                        ids[i], i, vocab - 1));
    }
    return Status::ok();
}

}  // namespace

Status check_request(const GenerationRequest& request, int32_t vocab) {
    if (request.prompt.empty()) {
        return invalid_argument("the prompt is empty; it must have at least one token");
    }
    if (request.prompt.size() > static_cast<size_t>(INT32_MAX)) {
        return invalid_argument(
            fmt::format("the prompt has {} tokens, more than any context", request.prompt.size()));
    }
    if (request.max_tokens < 1) {
        return invalid_argument(
            fmt::format("max_tokens is {}; it must be at least 1", request.max_tokens));
    }
    if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
        return invalid_argument(fmt::format("min_tokens is {}; it must be in [0, max_tokens {}]",
                                            request.min_tokens, request.max_tokens));
    }
    K3POD_TRY(check_ids("the prompt", request.prompt, vocab));
    K3POD_TRY(check_ids("stop_ids", request.stop_ids, vocab));
    return check_sampling(request.sampling, vocab);
}

}  // namespace k3pod
